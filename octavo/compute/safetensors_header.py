"""The header of a safetensors file, checked before any library reads it.

Owns the rules that make the file safe to map: a bounded header, a tensor's byte range equal to its
shape times its dtype, ranges that cover the data without holes or overlaps. Knows no tensor names.
Source: the format's public description.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.compute.json_file import parse_object
from octavo.core.errors import ModelFileError

MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 8
MAX_DIM = (1 << 31) - 1
DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor's place; `offset` counts from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """The directory of one file in the order of its data, which starts at `data_offset`."""

    tensors: dict[str, StoredTensor]
    data_offset: int
    file_bytes: int


def read_header(path: Path) -> SafetensorsHeader:
    """Read and check the header of `path`. Every failure is a ModelFileError naming the tensor."""
    try:
        with path.open("rb") as file:
            file_bytes = file.seek(0, 2)
            file.seek(0)
            n_bytes = int.from_bytes(file.read(8), "little")
            if file_bytes < 8 or n_bytes > min(MAX_HEADER_BYTES, file_bytes - 8):
                raise ModelFileError(
                    f"{path.name}: the header claims {n_bytes} bytes; the file has {file_bytes} "
                    f"and at most {MAX_HEADER_BYTES} are read"
                )
            raw = file.read(n_bytes)
    except OSError as error:
        raise ModelFileError(f"{path.name}: cannot be read: {error.strerror}") from error
    if raw[:1] != b"{":
        raise ModelFileError(f"{path.name}: the header does not start with an object")
    data_offset = 8 + n_bytes
    tensors = _directory(parse_object(raw, f"{path.name} header"), path.name, data_offset)
    _check_cover(tensors, path.name, data_offset, file_bytes)
    return SafetensorsHeader(tensors, data_offset, file_bytes)


def _directory(header: dict[str, Any], file: str, data_offset: int) -> dict[str, StoredTensor]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelFileError(f"{file}: __metadata__ must map names to texts")
    tensors = [(name, _tensor(entry, name, file, data_offset)) for name, entry in header.items()]
    tensors.sort(key=lambda item: (item[1].offset, item[1].n_bytes))
    return dict(tensors)


def _tensor(entry: Any, name: str, file: str, data_offset: int) -> StoredTensor:
    where = f"{file}: tensor {name[:64]!a}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{where} must have exactly dtype, shape and data_offsets")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        shown = f" {dtype[:16]!a}" if isinstance(dtype, str) else ""
        raise ModelFileError(
            f"{where}: dtype{shown} is not read; read are {', '.join(DTYPE_BYTES)}"
        )
    if not _counts(shape, MAX_DIM) or len(shape) > MAX_DIMS:
        raise ModelFileError(
            f"{where}: shape must be at most {MAX_DIMS} numbers from 0 to {MAX_DIM}"
        )
    if not _counts(span, 1 << 62) or len(span) != 2:
        raise ModelFileError(f"{where}: data_offsets must be two positions in the data")
    n_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    if span[1] - span[0] != n_bytes:
        raise ModelFileError(
            f"{where}: data_offsets hold {span[1] - span[0]} bytes; dtype and shape say {n_bytes}"
        )
    return StoredTensor(dtype, tuple(shape), data_offset + span[0], n_bytes)


def _counts(values: Any, limit: int) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v <= limit for v in values)


def _check_cover(
    tensors: dict[str, StoredTensor], file: str, data_offset: int, file_bytes: int
) -> None:
    end = data_offset
    for name, tensor in tensors.items():
        if tensor.offset != end:
            problem = "overlaps another" if tensor.offset < end else "leaves a hole before it"
            raise ModelFileError(f"{file}: tensor {name[:64]!a} {problem}")
        end += tensor.n_bytes
    if end != file_bytes:
        raise ModelFileError(f"{file}: the header describes {end} bytes; the file has {file_bytes}")
