"""Dequantisation equals the public package's, bit for bit, on any bytes that it can decode."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from octavo.compute import gguf_quants
from octavo.compute.gguf_quants import READABLE, dequantise
from octavo.core.errors import ModelFileError

BLOCKS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def oracle(raw: np.ndarray, type_name: str) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[type_name]
    plain = {"F32": np.float32, "F16": np.float16}.get(type_name)
    return gguf.quants.dequantize(raw if plain is None else raw.view(plain), kind)


@pytest.mark.parametrize("type_name", READABLE)
def test_equals_the_package_on_quantised_weights(type_name: str) -> None:
    weights = np.random.default_rng(0).standard_normal((48, 96), np.float32)
    kind = gguf.GGMLQuantizationType[type_name]
    raw = gguf.quants.quantize(weights, kind).view(np.uint8)
    ours = dequantise(torch.from_numpy(raw), type_name, name="w")
    assert ours.dtype == torch.float32
    assert ours.shape == (48, 96)
    np.testing.assert_array_equal(ours.numpy(), oracle(raw, type_name))
    assert np.abs(ours.numpy() - weights).max() < 0.5


@pytest.mark.parametrize("type_name", BLOCKS)
def test_equals_the_package_on_random_bytes(type_name: str) -> None:
    """Every bit of every field is used, so swapped nibbles or fifth bits cannot hide."""
    width = gguf_quants.BLOCK_BYTES[type_name]
    raw = np.random.default_rng(1).integers(0, 256, (64, 4 * width), np.uint8)
    halves = raw.reshape(-1, width)[:, : 4 if type_name.endswith("_1") else 2]
    halves[:, 1::2] &= 0x3F  # scales and minima below 2, so none is infinite or not a number
    ours = dequantise(torch.from_numpy(raw), type_name, name="w")
    np.testing.assert_array_equal(ours.numpy(), oracle(raw, type_name))


@pytest.mark.parametrize("type_name", BLOCKS)
def test_tiles_do_not_show(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = torch.randint(0, 100, (7, 3 * gguf_quants.BLOCK_BYTES[type_name]), dtype=torch.uint8)
    whole = dequantise(raw, type_name, name="w")
    monkeypatch.setattr(gguf_quants, "_TILE_BLOCKS", 4)
    assert torch.equal(dequantise(raw, type_name, name="w"), whole)


def test_a_type_that_is_not_read_is_named_with_those_that_are() -> None:
    with pytest.raises(ModelFileError, match=r"'blk\.0\.attn_q\.weight'.*Q6_K.*Q8_0") as caught:
        dequantise(torch.zeros(1, 210, dtype=torch.uint8), "Q6_K", name="blk.0.attn_q.weight")
    assert caught.value.param == "blk.0.attn_q.weight"
