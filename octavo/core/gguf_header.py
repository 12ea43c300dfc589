"""The header of a GGUF file: metadata and tensor directory, read as if the file were hostile.

Owns every check that must hold before anyone maps or multiplies a number from the file: nothing is
allocated in proportion to a number that was not first compared with the bytes that are left. Knows
neither what a metadata key means nor how a tensor's bytes are decoded. GGUF 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.core.gguf_types import GGUF_TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_METADATA_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 1 << 10
MAX_STRING_BYTES = 1 << 24
MAX_ITEMS = 1 << 23  # array elements of the whole file: a vocabulary has under a million tokens
MAX_ARRAY_DEPTH = 4
MAX_DIMS = 4
MAX_DIM = (1 << 31) - 1

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
# Metadata value types. 8 is a string and 9 an array.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY, _BOOL = 8, 9, 7


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor's place. `shape` is row-major, `offset` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """All that a GGUF file says before its tensor data, which starts at `data_offset`."""

    metadata: dict[str, Any]
    tensors: tuple[GGUFTensor, ...]
    alignment: int
    data_offset: int
    file_bytes: int


def read_header(path: str | Path) -> GGUFHeader:
    """Read and check the header of `path`. Every failure is a ModelFileError naming the field."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise ModelFileError(
                    f"{path.name}: {size} bytes are too few for a GGUF header; the download is cut"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, path.name).header()
    except OSError as error:
        raise ModelFileError(f"{path.name}: cannot be read: {error.strerror}") from error


class _Reader:
    """A position in the mapped file; each read is checked against the file's end."""

    def __init__(self, data: mmap.mmap, file_name: str) -> None:
        self._data = data
        self._size = len(data)
        self._at = 0
        self._file_name = file_name
        self._items_left = MAX_ITEMS

    def header(self) -> GGUFHeader:
        if self._take(4, "magic") != MAGIC:
            raise self._error("magic is not GGUF: this is no GGUF file")
        self._check_version()
        n_tensors = self._count("tensor_count", MAX_TENSORS, least_bytes=24)
        n_keys = self._count("metadata_kv_count", MAX_METADATA_KEYS, least_bytes=13)
        metadata = self._metadata(n_keys)
        alignment = self._alignment(metadata)
        entries = [self._entry(number) for number in range(n_tensors)]
        data_offset = -(-self._at // alignment) * alignment
        tensors = self._place(entries, data_offset, alignment)
        return GGUFHeader(metadata, tensors, alignment, data_offset, self._size)

    def _check_version(self) -> None:
        version = self._u32("version")
        if version in VERSIONS:
            return
        if int.from_bytes(_U32.pack(version), "big") in VERSIONS:
            raise self._error("version: a big-endian file; only little-endian files are read")
        raise self._error(f"version is {version}; GGUF 2 and 3 are read")

    def _metadata(self, n_keys: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for number in range(n_keys):
            key = self._string(f"metadata key {number}", MAX_NAME_BYTES)
            if key in metadata:
                raise self._error(f"metadata key {quoted(key)} is there twice")
            kind = self._u32(f"type of {quoted(key)}")
            metadata[key] = self._value(kind, key, depth=0)
        return metadata

    def _value(self, kind: int, key: str, *, depth: int) -> Any:
        if kind == _STRING:
            return self._string(quoted(key), MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self._array(key, depth=depth + 1)
        return self._scalars(kind, 1, key)[0]

    def _array(self, key: str, *, depth: int) -> list[Any]:
        if depth > MAX_ARRAY_DEPTH:
            raise self._error(f"{quoted(key)}: arrays nested deeper than {MAX_ARRAY_DEPTH}")
        kind = self._u32(f"element type of {quoted(key)}")
        n_items = self._u64(f"length of {quoted(key)}")
        if n_items > self._items_left:
            raise self._error(
                f"{quoted(key)}: {n_items} elements; all arrays together may hold {MAX_ITEMS}"
            )
        self._items_left -= n_items
        if kind == _STRING:
            return self._strings(n_items, key)
        if kind == _ARRAY:
            self._need(n_items * 12, quoted(key))
            return [self._array(key, depth=depth + 1) for _ in range(n_items)]
        return list(self._scalars(kind, n_items, key))

    def _scalars(self, kind: int, n: int, key: str) -> tuple[Any, ...]:
        code = _SCALARS.get(kind)
        if code is None:
            raise self._error(f"{quoted(key)} has the unknown value type {kind}")
        raw = self._take(n * struct.calcsize(code), quoted(key))
        if kind == _BOOL and raw.strip(b"\0\1"):
            raise self._error(f"{quoted(key)}: a bool is neither 0 nor 1")
        return struct.unpack(f"<{n}{code}", raw)

    def _strings(self, n: int, key: str) -> list[str]:
        """The hot loop: a vocabulary is 100,000 strings, so names are local and calls are few."""
        self._need(n * 8, quoted(key))
        data, size, at, length_at = self._data, self._size, self._at, _U64.unpack_from
        strings: list[str] = []
        append = strings.append
        try:
            for _ in range(n):
                start = at + 8
                at = start + length_at(data, at)[0]
                if at > size or at - start > MAX_STRING_BYTES:
                    raise self._error(f"{quoted(key)}: a string of {at - start} bytes is too long")
                append(data[start:at].decode())
        except struct.error:
            raise self._error(f"{quoted(key)}: the file ends inside the array") from None
        except UnicodeDecodeError:
            raise self._error(f"{quoted(key)}: a string is not UTF-8") from None
        self._at = at
        return strings

    def _alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
            raise self._error(f"general.alignment must be a power of two up to {MAX_ALIGNMENT}")
        return value

    def _entry(self, number: int) -> GGUFTensor:
        """One row of the directory; its offset still counts from the start of the data."""
        name = self._string(f"name of tensor {number}", MAX_NAME_BYTES)
        n_dims = self._u32(f"n_dims of {quoted(name)}")
        if not 1 <= n_dims <= MAX_DIMS:
            raise self._error(f"tensor {quoted(name)}: n_dims is {n_dims}, not 1 to {MAX_DIMS}")
        raw = self._take(8 * n_dims, f"dims of {quoted(name)}")
        dims = struct.unpack(f"<{n_dims}Q", raw)
        if not all(1 <= dim <= MAX_DIM for dim in dims):
            raise self._error(f"tensor {quoted(name)}: a dim is outside 1 to {MAX_DIM}")
        type_id = self._u32(f"type of {quoted(name)}")
        offset = self._u64(f"offset of {quoted(name)}")
        stored = GGUF_TYPES.get(type_id)
        if stored is None:
            raise self._error(f"tensor {quoted(name)} has the unknown type {type_id}")
        if dims[0] % stored.block_elements:
            raise self._error(
                f"tensor {quoted(name)}: rows of {dims[0]} are not whole {stored.name} blocks "
                f"of {stored.block_elements}"
            )
        n_bytes = dims[0] // stored.block_elements * stored.block_bytes
        for dim in dims[1:]:
            n_bytes *= dim
        return GGUFTensor(name, tuple(reversed(dims)), stored.name, offset, n_bytes)

    def _place(
        self, entries: list[GGUFTensor], data_offset: int, alignment: int
    ) -> tuple[GGUFTensor, ...]:
        """Check that the tensors lie aligned, in order and apart inside the file; make absolute."""
        names: set[str] = set()
        placed = []
        end = data_offset
        for entry in entries:
            where = f"tensor {quoted(entry.name)}"
            if entry.name in names:
                raise self._error(f"{where} is there twice")
            names.add(entry.name)
            offset = data_offset + entry.offset
            if entry.offset % alignment:
                raise self._error(f"{where}: offset is no multiple of {alignment}")
            if offset < end:
                raise self._error(f"{where}: offset lies inside or before the tensor before it")
            end = offset + entry.n_bytes
            if end > self._size:
                raise self._error(f"{where} ends at byte {end}; the file has {self._size}")
            placed.append(GGUFTensor(entry.name, entry.shape, entry.type, offset, entry.n_bytes))
        return tuple(placed)

    def _count(self, field: str, limit: int, *, least_bytes: int) -> int:
        n = self._u64(field)
        if n > limit:
            raise self._error(f"{field} is {n}; at most {limit} are read")
        self._need(n * least_bytes, field)
        return n

    def _string(self, field: str, limit_bytes: int) -> str:
        n_bytes = self._u64(f"length of {field}")
        if n_bytes > limit_bytes:
            raise self._error(f"{field}: {n_bytes} bytes; at most {limit_bytes} are read")
        try:
            return self._take(n_bytes, field).decode()
        except UnicodeDecodeError:
            raise self._error(f"{field} is not UTF-8") from None

    def _u32(self, field: str) -> int:
        return int.from_bytes(self._take(4, field), "little")

    def _u64(self, field: str) -> int:
        return int.from_bytes(self._take(8, field), "little")

    def _need(self, n_bytes: int, field: str) -> None:
        if n_bytes > self._size - self._at:
            raise self._error(
                f"{field}: needs {n_bytes} bytes at {self._at}; the file has {self._size}"
            )

    def _take(self, n_bytes: int, field: str) -> bytes:
        self._need(n_bytes, field)
        raw = self._data[self._at : self._at + n_bytes]
        self._at += n_bytes
        return raw

    def _error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self._file_name}: {what}")


def quoted(name: str) -> str:
    """A name from a file, fit for a message: quoted, escaped and cut."""
    return ascii(name if len(name) <= 64 else name[:61] + "...")
