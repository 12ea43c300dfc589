"""Which reader a model's tokenizer takes: a folder's or a GGUF file's. Reads no weights."""

from __future__ import annotations

from pathlib import Path

from octavo.engine.tokenizer import Tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model at `path`, as `compute.hub.resolve` found it.

    Raises ModelFileError.
    """
    if path.is_dir():
        from octavo.engine.hf_tokenizer import from_folder

        return from_folder(path)
    from octavo.core.gguf_header import read_header
    from octavo.engine.gguf_tokenizer import from_metadata

    return from_metadata(read_header(path).metadata)
