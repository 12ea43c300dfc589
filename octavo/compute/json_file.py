"""JSON from untrusted files: bounded, an object at the top, no key twice. Knows no meanings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.core.errors import ModelFileError

MAX_CONFIG_BYTES = 16 << 20


def read_object(path: Path, *, limit_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Read the object in `path`; raises ModelFileError naming the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit_bytes + 1)
    except OSError as error:
        raise ModelFileError(f"{path.name}: cannot be read: {error.strerror}") from error
    if len(raw) > limit_bytes:
        raise ModelFileError(f"{path.name} is larger than {limit_bytes} bytes")
    return parse_object(raw, path.name)


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """Parse `raw` as one strict JSON object; `where` names it in messages."""
    try:
        value = json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise ModelFileError(f"{where}: JSON is nested too deep") from None
    except ValueError as error:  # also bytes that are not UTF-8 and numbers of absurd length
        raise ModelFileError(f"{where}: not valid JSON: {str(error)[:120]!a}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{where}: must be a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
