"""Random weights in every format that the kernels multiply with, packed and as float64."""

from __future__ import annotations

import numpy as np
import torch

from octavo.compute.gguf_quants import BLOCK_BYTES, PLAIN, dequantise
from octavo.compute.native.gguf_grids import GRIDS, grid_of
from octavo.compute.native.panels import Floats, Matrix, Panels, interleave, pack
from octavo.core.gguf_types import GGUF_TYPES

HALVES = ("BF16", "F16")
FORMATS = (*GRIDS, *HALVES)  # as GGUF names them
_ELEMENTS = {stored.name: stored.block_elements for stored in GGUF_TYPES.values()}
# Where in a block its f16 numbers are: scale, and minimum where there is one.
_NUMBERS_AT = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def blocks(type_name: str, n: int, k: int, *, seed: int = 0) -> torch.Tensor:
    """Random rows of a GGUF type, uint8 [n, row bytes]: any bits, scales of moderate size."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (n, k // _ELEMENTS[type_name], BLOCK_BYTES[type_name]), np.uint8)
    for at in _NUMBERS_AT[type_name]:
        scales = rng.uniform(-0.1, 0.1, raw.shape[:2]).astype(np.float16)
        raw[:, :, at : at + 2] = scales.view(np.uint8).reshape(*raw.shape[:2], 2)
    return torch.from_numpy(raw.reshape(n, -1))


def halves(type_name: str, n: int, k: int, *, seed: int = 0) -> torch.Tensor:
    """Random values of 16 bits, [n, k]."""
    random = torch.randn(n, k, generator=torch.Generator().manual_seed(seed))
    return (0.1 * random).to(PLAIN[type_name])


def drawn(type_name: str, n: int, k: int, *, seed: int = 0) -> tuple[Matrix, torch.Tensor]:
    """A matrix of the format, and its values as float64 [n, k]."""
    if type_name in HALVES:
        values = halves(type_name, n, k, seed=seed)
        return Floats(values), values.double()
    raw = blocks(type_name, n, k, seed=seed)
    return grid_of(raw, type_name), dequantise(raw, type_name, name="w").double()


def packed(type_name: str, n: int, k: int, *, seed: int = 0) -> tuple[Panels, torch.Tensor]:
    """As `drawn`, the matrix packed."""
    matrix, values = drawn(type_name, n, k, seed=seed)
    return pack(matrix), values


def packed_gate(
    type_name: str, n: int, k: int, *, seed: int = 0
) -> tuple[Panels, torch.Tensor, torch.Tensor]:
    """Gate and up of `n` columns each, interleaved and packed, and the values of both."""
    (gate, gate_values), (up, up_values) = (
        drawn(type_name, n, k, seed=2 * seed + half) for half in range(2)
    )
    return pack(interleave(gate, up)), gate_values, up_values
