"""Dequantisation equals the public package's, bit for bit, on any bytes that it can decode."""

from __future__ import annotations

import sys

import gguf
import numpy as np
import pytest
import torch

from octavo.compute import gguf_quants
from octavo.compute.gguf_library import LIBRARY_TYPES
from octavo.compute.gguf_quants import PLAIN, READABLE, check_readable, dequantise
from octavo.core.errors import ModelFileError

BLOCKS = [name for name in READABLE if name not in PLAIN]
# Where each type keeps its f16 fields, as byte offsets in a block.
HALVES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **{"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)},
    **{"MXFP4": (), "NVFP4": ()},
    **dict.fromkeys(LIBRARY_TYPES, (0,)),
    "IQ1_M": (54,),  # its scale is in the top bits of four words; this has the exponent's
}


def oracle(raw: np.ndarray, type_name: str) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[type_name]
    plain = {"F32": np.float32, "F16": np.float16}.get(type_name)
    return gguf.quants.dequantize(raw if plain is None else raw.view(plain), kind)


@pytest.mark.parametrize("type_name", [*PLAIN, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_equals_the_package_on_quantised_weights(type_name: str) -> None:
    weights = np.random.default_rng(0).standard_normal((48, 96), np.float32)
    kind = gguf.GGMLQuantizationType[type_name]
    raw = gguf.quants.quantize(weights, kind).view(np.uint8)
    ours = dequantise(torch.from_numpy(raw), type_name, name="w")
    assert ours.dtype == torch.float32
    assert ours.shape == (48, 96)
    np.testing.assert_array_equal(ours.numpy(), oracle(raw, type_name))
    assert np.abs(ours.numpy() - weights).max() < 0.8


@pytest.mark.parametrize("type_name", BLOCKS)
def test_equals_the_package_on_random_bytes(type_name: str) -> None:
    """Every bit of every field is used, so swapped nibbles or scales cannot hide."""
    width = gguf_quants.BLOCK_BYTES[type_name]
    raw = np.random.default_rng(1).integers(0, 256, (64, 4 * width), np.uint8)
    blocks = raw.reshape(-1, width)
    for at in HALVES[type_name]:
        blocks[:, at + 1] &= 0xBF  # scales and minima between -2 and 2: none is infinite
    if type_name == "MXFP4":
        blocks[:, 0] &= 0x7F  # the same for its exponent
    ours = dequantise(torch.from_numpy(raw), type_name, name="w").numpy()
    theirs = oracle(raw, type_name)
    assert np.isfinite(theirs).all()
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("type_name", ["MXFP4", "NVFP4"])
def test_every_scale_of_a_small_float_is_right(type_name: str) -> None:
    scales = np.arange(256, dtype=np.uint8)
    codes = np.tile(np.arange(16, dtype=np.uint8) * 17, (256, 2 if type_name == "NVFP4" else 1))
    raw = np.concatenate([scales[:, None]] * (4 if type_name == "NVFP4" else 1) + [codes], axis=1)
    ours = dequantise(torch.from_numpy(raw), type_name, name="w").numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(ours, oracle(raw, type_name))


@pytest.mark.parametrize("type_name", BLOCKS)
def test_tiles_do_not_show(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = torch.randint(0, 100, (35, 3 * gguf_quants.BLOCK_BYTES[type_name]), dtype=torch.uint8)
    whole = dequantise(raw, type_name, name="w")
    monkeypatch.setattr(gguf_quants, "_TILE_ELEMENTS", 1024)
    tiled = dequantise(raw, type_name, name="w")
    assert torch.equal(tiled.view(torch.int32), whole.view(torch.int32))


@pytest.mark.parametrize("type_name", ["Q8_K", "Q8_1", "Q1_0", "I8"])
def test_a_type_that_is_not_read_is_named_with_those_that_are(type_name: str) -> None:
    with pytest.raises(
        ModelFileError, match=rf"'blk\.0\.attn_q\.weight'.*{type_name}.*Q6_K"
    ) as caught:
        dequantise(torch.zeros(1, 256, dtype=torch.uint8), type_name, name="blk.0.attn_q.weight")
    assert caught.value.param == "blk.0.attn_q.weight"


@pytest.mark.parametrize("type_name", LIBRARY_TYPES)
def test_without_the_package_the_extra_is_named(
    type_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf.quants", None)  # as if it were not installed
    with pytest.raises(ModelFileError, match=rf"'w' is stored as {type_name}.*octavo\[gguf\]"):
        check_readable(type_name, name="w")
    check_readable("Q4_0", name="w")
