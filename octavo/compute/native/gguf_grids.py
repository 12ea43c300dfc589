"""GGUF blocks as `Grid`s, their values exact. Owns which types have one; knows no files.

    Q4_0, Q4_1   4 bits, scales f16 as stored: 4.5 and 5 bits a weight
    Q5_0, Q5_1, Q8_0   8 bits, scales f16: 8.5, 9 and 8.5 bits
    Q4_K         4 bits; a group's scale is a product of two numbers, kept as f32: 6 bits
    Q5_K, Q6_K   8 bits, scales f32: 10 bits
Layouts of the blocks are described in `gguf_quants` and `gguf_k_quants`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.compute.gguf_block import add_bits, half, put_bits, signed
from octavo.compute.gguf_k_quants import eighths
from octavo.compute.gguf_quants import BLOCK_BYTES
from octavo.compute.native.panels import Grid

_NIBBLES = (0, 4)


def grid_of(raw: torch.Tensor, type_name: str) -> Grid:
    """`raw` uint8 [n, row bytes] of a type in `GRIDS`."""
    blocks = raw.reshape(-1, BLOCK_BYTES[type_name])
    return GRIDS[type_name](blocks, len(raw))


def _f16(blocks: torch.Tensor, at: int, n: int) -> torch.Tensor:
    """The f16 at byte `at` of each block, [n, blocks per row]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).view(n, -1)


def _q4_0(blocks: torch.Tensor, n: int) -> Grid:
    stored = blocks[:, 2:].reshape(n, -1, 16)
    return Grid(stored=stored, scale=_f16(blocks, 0, n), minimum=None, bits=4, group=32, zero=8)


def _q4_1(blocks: torch.Tensor, n: int) -> Grid:
    stored = blocks[:, 4:].reshape(n, -1, 16)
    scale, minimum = _f16(blocks, 0, n), _f16(blocks, 2, n)
    return Grid(stored=stored, scale=scale, minimum=minimum, bits=4, group=32, zero=0)


def _fifth_bits(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Values 0 to 31, uint8 [blocks, 32], of fifth bits at byte `at` and nibbles after them."""
    values = torch.empty(len(blocks), 32, dtype=torch.uint8)
    put_bits(blocks[:, at + 4 :], _NIBBLES, 15, values.view(-1, 2, 16))
    add_bits(blocks[:, at : at + 4, None], range(8), 1, 16, values.view(-1, 4, 8, 1))
    return values


def _q5_0(blocks: torch.Tensor, n: int) -> Grid:
    stored = _fifth_bits(blocks, 2).view(n, -1, 32)
    return Grid(stored=stored, scale=_f16(blocks, 0, n), minimum=None, bits=8, group=32, zero=16)


def _q5_1(blocks: torch.Tensor, n: int) -> Grid:
    stored = _fifth_bits(blocks, 4).view(n, -1, 32)
    scale, minimum = _f16(blocks, 0, n), _f16(blocks, 2, n)
    return Grid(stored=stored, scale=scale, minimum=minimum, bits=8, group=32, zero=0)


def _q8_0(blocks: torch.Tensor, n: int) -> Grid:
    stored = (blocks[:, 2:] ^ 128).view(n, -1, 32)  # signed bytes, counted from -128
    return Grid(stored=stored, scale=_f16(blocks, 0, n), minimum=None, bits=8, group=32, zero=128)


def _q4_k(blocks: torch.Tensor, n: int) -> Grid:
    values = torch.empty(len(blocks), 4, 2, 32, dtype=torch.uint8)
    put_bits(blocks[:, 16:].view(-1, 4, 32), _NIBBLES, 15, values)
    halves = values.view(-1, 2, 16)
    stored = (halves[:, 0] | (halves[:, 1] << 4)).view(n, -1, 16)
    scale, minimum = _eighth_numbers(blocks, n)
    return Grid(stored=stored, scale=scale, minimum=minimum, bits=4, group=32, zero=0)


def _q5_k(blocks: torch.Tensor, n: int) -> Grid:
    values = torch.empty(len(blocks), 4, 2, 32, dtype=torch.uint8)
    put_bits(blocks[:, 48:].view(-1, 4, 32), _NIBBLES, 15, values)
    add_bits(blocks[:, 16:48], range(8), 1, 16, values.view(-1, 8, 32))
    scale, minimum = _eighth_numbers(blocks, n)
    stored = values.view(n, -1, 32)
    return Grid(stored=stored, scale=scale, minimum=minimum, bits=8, group=32, zero=0)


def _q6_k(blocks: torch.Tensor, n: int) -> Grid:
    values = torch.empty(len(blocks), 2, 2, 64, dtype=torch.uint8)
    put_bits(blocks[:, :128].view(-1, 2, 64), _NIBBLES, 15, values)
    add_bits(blocks[:, 128:192].view(-1, 2, 32), (0, 2, 4, 6), 3, 16, values.view(-1, 2, 4, 32))
    scale = (signed(blocks[:, 192:208]) * half(blocks, 208)).reshape(n, -1)
    stored = values.view(n, -1, 16)
    return Grid(stored=stored, scale=scale, minimum=None, bits=8, group=16, zero=32)


def _eighth_numbers(blocks: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    scales, minima = eighths(blocks)
    return scales.reshape(n, -1), minima.neg().reshape(n, -1)


GRIDS: dict[str, Callable[[torch.Tensor, int], Grid]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
