"""Which reader a model's tokenizer takes: a folder's or a GGUF file's. Reads no weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.engine.tokenizer import Tokenizer


def open_tokenizer(path: Path, metadata: Mapping[str, Any] | None) -> Tokenizer:
    """The tokenizer of the folder at `path`, or of the .gguf file with `metadata`.

    Raises ModelFileError.
    """
    if metadata is None:
        from octavo.engine.hf_tokenizer import from_folder

        return from_folder(path)
    from octavo.engine.gguf_tokenizer import from_metadata

    return from_metadata(metadata)
