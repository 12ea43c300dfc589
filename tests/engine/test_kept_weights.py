"""Rounded weights kept for the next start: the same bits, and nothing that is not quite ours."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.compute import kept_weights
from octavo.compute.native import library, packed_file, start
from octavo.compute.native.float_grids import grid_bytes, grid_weights, round_matrix
from octavo.compute.native.panels import pack
from octavo.compute.native.structs import Weights
from octavo.compute.weights import open_source
from tests.checkpoints import tiny_llama
from tests.engine.test_native import NATIVE, PROMPTS, assert_bits
from tests.engine.tiny import Desk
from tests.families import FAMILIES, tiny_family

try:
    library.usable_isas()
except library.NotBuilt:
    pytest.skip("the kernels were not built: no C++ compiler", allow_module_level=True)

KEPT: dict[str, Any] = {**NATIVE, "keep_quantized": True}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one; rounding a second time fails the test unless it says otherwise."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def roundings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What quantization was asked of each model that was read from its own files."""
    found: list[str] = []
    parts = start.parts

    def counted(source: Any, *, quantization: Any, round_to_bf16: bool) -> Any:
        found.append(quantization)
        return parts(source, quantization=quantization, round_to_bf16=round_to_bf16)

    monkeypatch.setattr(start, "parts", counted)
    return found


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*")) if cache.is_dir() else []


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_start_has_the_same_bits_and_rounds_nothing(
    tmp_path: Path, roundings: list[str], family: str, quantization: str
) -> None:
    tiny_family(tmp_path / "model", family)
    options = {**KEPT, "quantization": quantization}
    first = Desk(tmp_path / "model", **options).answer(*PROMPTS[:3])
    second = Desk(tmp_path / "model", **options).answer(*PROMPTS[:3])
    assert roundings == [quantization]
    for got, wanted in zip(second, first, strict=True):
        assert_bits(got, wanted)


@pytest.mark.parametrize(("n", "k"), [(16, 32), (33, 96), (80, 256)])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_the_size_and_struct_are_those_of_packing(n: int, k: int, kind: str) -> None:
    made = pack(round_matrix(torch.randn(n, k), kind, name="w"))
    assert grid_bytes(n, k, kind) == made.n_bytes
    found = grid_weights(made.memory, n, k, kind)
    for name, _ in Weights._fields_:
        assert getattr(found, name) == getattr(made.weights, name)


def test_it_is_off_where_it_was_not_asked_for(folder: Path, cache: Path) -> None:
    Desk(folder, **NATIVE, quantization="int8")
    Desk(folder, **{**KEPT, "dtype": "bfloat16"})
    assert not files(cache)


def test_other_weights_and_other_roundings_have_files_of_their_own(
    folder: Path, cache: Path, roundings: list[str]
) -> None:
    for quantization in ("int8", "int4"):
        Desk(folder, **KEPT, quantization=quantization)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    Desk(folder, **KEPT, quantization="int8")
    assert roundings == ["int8", "int4", "int8"]
    assert len(files(cache)) == 3


def damaged(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "a bit":
        content[len(content) // 2] ^= 1
    elif how == "the key":
        content[len(packed_file.MAGIC)] ^= 1
    elif how == "longer":
        content += b"x"
    else:
        content = content[: {"empty": 0, "shorter": -1, "a header": 80}[how]]
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["a bit", "the key", "longer", "shorter", "a header", "empty"])
def test_a_file_that_is_not_quite_ours_is_made_again(
    folder: Path,
    cache: Path,
    roundings: list[str],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    options = {**KEPT, "quantization": "int4"}
    expected = Desk(folder, **options).answer(PROMPTS[3])[0]
    (file,) = files(cache)
    whole = file.read_bytes()
    damaged(file, how)
    with caplog.at_level(logging.WARNING):
        assert_bits(Desk(folder, **options).answer(PROMPTS[3])[0], expected)
    assert "damaged or not ours" in caplog.text
    assert roundings == ["int4", "int4"]
    assert file.read_bytes() == whole


def test_code_that_lays_weights_out_otherwise_has_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed_file.key_of(b"f" * 32, "int8")
    assert before == packed_file.key_of(b"f" * 32, "int8")
    assert before != packed_file.key_of(b"f" * 32, "int4")
    changed = tmp_path / "panels.py"
    changed.write_text("# another layout")
    monkeypatch.setattr(packed_file.panels, "__file__", str(changed))
    assert packed_file.key_of(b"f" * 32, "int8") != before


def test_a_folder_that_cannot_be_written_costs_a_warning_and_no_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("OCTAVO_CACHE", str(blocked))
    with caplog.at_level(logging.WARNING):
        Desk(folder, **KEPT, quantization="int8")
    assert "not kept" in caplog.text


def test_a_few_files_are_kept_those_that_were_used_last(cache: Path) -> None:
    names = [bytes([i]) * 32 for i in range(kept_weights.MOST_FILES + 1)]
    for i, key in enumerate(names[:-1]):
        kept_weights.write(kept_weights.path_of(key), lambda file: file.write(b"12345"))
        os.utime(kept_weights.path_of(key), (1000 + i, 1000 + i))
    kept_weights.used(kept_weights.path_of(names[0]))
    kept_weights.write(kept_weights.path_of(names[-1]), lambda file: file.write(b"12345"))
    assert not kept_weights.path_of(names[1]).exists()
    assert len(files(cache)) == kept_weights.MOST_FILES
    found = kept_weights.kept()
    assert (found.n_files, found.n_bytes) == (4, 20)


def test_a_file_half_written_is_never_seen(cache: Path) -> None:
    def fails(file: Any) -> None:
        file.write(b"half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        kept_weights.write(kept_weights.path_of(b"k" * 32), fails)
    assert not files(cache)


def test_the_source_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(folder)
    first = source.fingerprint()
    monkeypatch.setattr("octavo.compute.safetensors_source.fingerprint", None)
    assert source.fingerprint() == first
