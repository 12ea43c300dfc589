"""The GGUF header reader: the public package on good files, ModelFileError on all others."""

from __future__ import annotations

import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core import gguf_header
from octavo.core.errors import ModelFileError
from octavo.core.gguf_header import read_header
from octavo.core.gguf_types import GGUF_TYPES

U32, STRING, ARRAY, BOOL, U8 = 4, 8, 9, 7, 0


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, raw: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + raw


def array(kind: int, n: int, raw: bytes) -> bytes:
    return struct.pack("<IQ", kind, n) + raw


def entry(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    packed = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + packed + struct.pack("<IQ", kind, offset)


def build(
    pairs: tuple[bytes, ...] = (),
    entries: tuple[bytes, ...] = (),
    *,
    data_bytes: int = 0,
    version: int = 3,
    n_pairs: int | None = None,
    n_entries: int | None = None,
    align: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(entries) if n_entries is None else n_entries,
        len(pairs) if n_pairs is None else n_pairs,
    )
    head += b"".join(pairs) + b"".join(entries)
    return head + bytes(-len(head) % align) + bytes(data_bytes)


def read(folder: Path, raw: bytes) -> gguf_header.GGUFHeader:
    path = folder / "x.gguf"
    path.write_bytes(raw)
    return read_header(path)


def write_sample(path: Path) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint8("t.u8", 255)
    writer.add_int8("t.i8", -7)
    writer.add_uint16("t.u16", 65535)
    writer.add_int16("t.i16", -300)
    writer.add_uint32("t.u32", 1 << 31)
    writer.add_int32("t.i32", -(1 << 30))
    writer.add_uint64("t.u64", 1 << 63)
    writer.add_int64("t.i64", -(1 << 62))
    writer.add_float32("t.f32", 0.5)
    writer.add_float64("t.f64", 1e300)
    writer.add_bool("t.yes", True)
    writer.add_bool("t.no", False)
    writer.add_string("t.text", "größer ☃")
    writer.add_array("t.words", ["a", "", "ünï", "x" * 300])
    writer.add_array("t.numbers", [1, -2, 3])
    writer.add_array("t.floats", [0.5, 0.25])
    writer.add_array("t.nested", [[1, 2], [3]])
    writer.add_tensor("a.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("b.weight", np.arange(5, dtype=np.float16))
    q = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("c.weight", q, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.gguf"
    write_sample(path)
    return path


def test_metadata_equals_the_package_reader(sample: Path) -> None:
    header = read_header(sample)
    oracle = gguf.GGUFReader(str(sample))
    fields = {k: f for k, f in oracle.fields.items() if not k.startswith("GGUF.")}
    assert header.metadata.keys() == fields.keys()
    for key in header.metadata.keys() - {"t.nested"}:
        assert header.metadata[key] == fields[key].contents()
    assert header.metadata["t.nested"] == [[1, 2], [3]]
    assert header.metadata["t.yes"] is True
    assert header.metadata["t.words"][3] == "x" * 300


def test_tensors_equal_the_package_reader(sample: Path) -> None:
    header = read_header(sample)
    oracle = gguf.GGUFReader(str(sample)).tensors
    assert [t.name for t in header.tensors] == ["a.weight", "b.weight", "c.weight"]
    for ours, theirs in zip(header.tensors, oracle, strict=True):
        assert ours.shape == tuple(int(n) for n in reversed(theirs.shape))
        assert ours.type == theirs.tensor_type.name
        assert (ours.offset, ours.n_bytes) == (theirs.data_offset, theirs.n_bytes)
    assert header.alignment == 32
    assert header.file_bytes == sample.stat().st_size


def test_type_table_equals_the_package() -> None:
    for number, stored in GGUF_TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert stored.name == kind.name
        assert (stored.block_elements, stored.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


def test_version_2_and_custom_alignment(tmp_path: Path) -> None:
    pairs = (pair("general.alignment", U32, struct.pack("<I", 64)),)
    raw = build(pairs, (entry("a", (4,), 0, 0),), data_bytes=16, version=2, align=64)
    header = read(tmp_path, raw)
    assert header.alignment == 64
    assert header.tensors[0].offset % 64 == 0


ONE = pair("k", U8, b"\1")
A = entry("a", (8,), 0, 0)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "magic": (b"GGML" + build()[4:] + bytes(8), "magic"),
    "empty": (b"", "too few"),
    "version 1": (build(version=1), "version is 1"),
    "version 4": (build(version=4), "version is 4"),
    "big endian": (build(version=3 << 24), "big-endian"),
    "tensor count": (build(n_entries=(1 << 64) - 1), "tensor_count"),
    "tensor count past file": (build(n_entries=1000), "tensor_count"),
    "key count": (build(n_pairs=(1 << 63)), "metadata_kv_count"),
    "key count past file": (build(n_pairs=60_000), "metadata_kv_count"),
    "key length": (build((struct.pack("<Q", 1 << 62) + bytes(16),)), "metadata key 0"),
    "key length over limit": (build((pair("k" * 2000, U8, b"\1"),)), "metadata key 0"),
    "key not UTF-8": (build((text(b"\xff\xfe") + struct.pack("<IB", 0, 1),)), "UTF-8"),
    "duplicate key": (build((ONE, ONE)), "'k' is there twice"),
    "value type": (build((pair("k", 13, bytes(8)),)), "value type 13"),
    "string length": (build((pair("k", STRING, struct.pack("<Q", 1 << 40)),)), "'k'"),
    "string not UTF-8": (build((pair("k", STRING, text(b"\x80")),)), "UTF-8"),
    "bool": (build((pair("k", BOOL, b"\2"),)), "bool"),
    "array length": (build((pair("k", ARRAY, array(U8, 1 << 60, b"")),)), "elements"),
    "array past file": (build((pair("k", ARRAY, array(U8, 5000, b"")),)), "needs 5000"),
    "strings past file": (build((pair("k", ARRAY, array(STRING, 500, b"")),)), "needs 4000"),
    "string in array": (
        build((pair("k", ARRAY, array(STRING, 1, struct.pack("<Q", 1 << 50))),)),
        "too long",
    ),
    "strings not UTF-8": (build((pair("k", ARRAY, array(STRING, 1, text(b"\xc0"))),)), "UTF-8"),
    "array type": (build((pair("k", ARRAY, array(77, 1, bytes(8))),)), "value type 77"),
    "array depth": (
        build((pair("k", ARRAY, array(ARRAY, 1, b"") * 40 + array(U8, 0, b"")),)),
        "nested deeper",
    ),
    "alignment zero": (build((pair("general.alignment", U32, bytes(4)),)), "alignment"),
    "alignment odd": (
        build((pair("general.alignment", U32, struct.pack("<I", 24)),)),
        "alignment",
    ),
    "alignment text": (build((pair("general.alignment", STRING, text("32")),)), "alignment"),
    "no dims": (build(entries=(entry("a", (), 0, 0),), data_bytes=64), "n_dims is 0"),
    "many dims": (build(entries=(entry("a", (1,) * 9, 0, 0),), data_bytes=64), "n_dims is 9"),
    "dim zero": (build(entries=(entry("a", (0,), 0, 0),), data_bytes=64), "a dim is outside"),
    "dim over 31 bits": (
        build(entries=(entry("a", (1 << 31,), 0, 0),), data_bytes=64),
        "a dim is outside",
    ),
    "dims overflow 64 bits": (
        build(entries=(entry("a", ((1 << 31) - 1,) * 4, 0, 0),), data_bytes=64),
        "ends at byte",
    ),
    "tensor type": (build(entries=(entry("a", (8,), 4, 0),), data_bytes=64), "unknown type 4"),
    "broken block": (build(entries=(entry("a", (33,), 2, 0),), data_bytes=64), "whole Q4_0"),
    "offset unaligned": (build(entries=(entry("a", (8,), 0, 8),), data_bytes=64), "multiple"),
    "offset huge": (
        build(entries=(entry("a", (8,), 0, (1 << 64) - 32),), data_bytes=64),
        "ends at byte",
    ),
    "past file": (build(entries=(entry("a", (17,), 0, 0),), data_bytes=64), "ends at byte"),
    "overlap": (build(entries=(A, entry("b", (8,), 0, 0)), data_bytes=64), "inside or before"),
    "descending": (
        build(entries=(entry("a", (8,), 0, 32), entry("b", (8,), 0, 0)), data_bytes=64),
        "inside or before",
    ),
    "duplicate tensor": (
        build(entries=(A, entry("a", (8,), 0, 32)), data_bytes=64),
        "'a' is there twice",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_by_name(tmp_path: Path, case: str) -> None:
    raw, message = HOSTILE[case]
    started = time.perf_counter()
    with pytest.raises(ModelFileError, match=message):
        read(tmp_path, raw)
    assert time.perf_counter() - started < 2.0


def test_array_elements_are_limited_over_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_header, "MAX_ITEMS", 10)
    ok = build((pair("a", ARRAY, array(U8, 6, bytes(6))), pair("b", ARRAY, array(U8, 4, bytes(4)))))
    assert read(tmp_path, ok).metadata["b"] == [0, 0, 0, 0]
    bad = build(
        (pair("a", ARRAY, array(U8, 6, bytes(6))), pair("b", ARRAY, array(U8, 5, bytes(5))))
    )
    with pytest.raises(ModelFileError, match="all arrays together"):
        read(tmp_path, bad)


def test_every_truncation_is_refused(tmp_path: Path, sample: Path) -> None:
    raw = sample.read_bytes()
    last = read_header(sample).tensors[-1]
    needed = last.offset + last.n_bytes
    for length in [*range(0, last.offset, 7), needed - 1]:
        with pytest.raises(ModelFileError):
            read(tmp_path, raw[:length])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ModelFileError, match="cannot be read"):
            read_header(path)


def test_messages_show_names_escaped_and_short(tmp_path: Path) -> None:
    name = "\x1b[31m" + "n" * 900
    with pytest.raises(ModelFileError) as caught:
        read(tmp_path, build(entries=(entry(name, (8,), 4, 0),), data_bytes=64))
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200


def _sample_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder) / "s.gguf")
        return (Path(folder) / "s.gguf").read_bytes()


SAMPLE = _sample_bytes()
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(SAMPLE) - 8),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\0\0\0\x80", b"\xff\xff\xff\x7f"]),
        ),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=2000)
@given(edits=EDITS, cut=st.one_of(st.none(), st.integers(0, len(SAMPLE))))
def test_mutations_parse_or_raise_model_file_error(
    edits: list[tuple[int, bytes]], cut: int | None
) -> None:
    raw = bytearray(SAMPLE)
    for at, patch in edits:
        raw[at : at + len(patch)] = patch
    with tempfile.TemporaryDirectory() as folder:
        try:
            header = read(Path(folder), bytes(raw[:cut]))
        except ModelFileError:
            return
    check_placed(header)


def check_placed(header: gguf_header.GGUFHeader) -> None:
    """Whatever parses lies inside the file, in order."""
    end: Any = header.data_offset
    for tensor in header.tensors:
        assert tensor.offset >= end
        end = tensor.offset + tensor.n_bytes
        assert end <= header.file_bytes
