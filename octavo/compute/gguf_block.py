"""Fields of GGUF blocks as tensors: halves, bit fields, code books. Knows no block format.

Blocks are uint8 [n, block bytes]. Every function works on one tile at a time, so its temporaries
are small.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The f16 value at byte `at` of each block as float32 [n, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def signed(values: torch.Tensor) -> torch.Tensor:
    """Bytes as int8, as float32 of the same shape."""
    return values.view(torch.int8).float()


def put_bits(packed: torch.Tensor, shifts: Iterable[int], mask: int, out: torch.Tensor) -> None:
    """out[..., i, :] = bits of `packed` [..., width] from shifts[i] upwards, cut by `mask`."""
    for place, shift in enumerate(shifts):
        out[..., place, :] = (packed >> shift) & mask


def add_bits(
    packed: torch.Tensor, shifts: Iterable[int], mask: int, weight: int, out: torch.Tensor
) -> None:
    """out[..., i, :] += weight · (bits of `packed` [..., width] from shifts[i], cut by `mask`)."""
    for place, shift in enumerate(shifts):
        out[..., place, :].add_((packed >> shift) & mask, alpha=weight)


def put_codes(packed: torch.Tensor, book: torch.Tensor, out: torch.Tensor) -> None:
    """out [..., 2 · w] = code book entries of the nibbles of `packed` [..., w]: low ones first."""
    codes = torch.cat((packed & 15, packed >> 4), dim=-1)
    torch.index_select(book, 0, codes.flatten().int(), out=out.view(-1))
