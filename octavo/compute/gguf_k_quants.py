"""The K formats of GGUF: blocks of 256 weights, cut into groups with small scales of their own.

Owns the five layouts, from the public descriptions of the formats. A scale of a group is a few bits
times the block's f16 scale d, its minimum a few bits times the block's dmin.
    Q2_K  16 × (scale, minimum) of 4 bits · 64 bytes of 2 bits · d · dmin
    Q3_K  32 bytes of third bits · 64 bytes of 2 bits · 16 scales of 6 bits, less 32 · d
    Q4_K  d · dmin · 8 × (scale, minimum) of 6 bits · 128 bytes of 4 bits
    Q5_K  d · dmin · 8 × (scale, minimum) of 6 bits · 32 bytes of fifth bits · 128 bytes of 4 bits
    Q6_K  128 bytes of 4 bits · 64 bytes of high 2 bits, less 32 · 16 signed scales · d
Elements are interleaved: a run of bytes holds the low bits of one stretch of elements, then the
next higher bits of the same bytes the stretch after it.
Values equal (d · scale) · q - (dmin · minimum) in float32, one rounding per operation.
"""

from __future__ import annotations

import torch

from octavo.compute.gguf_block import add_bits, half, put_bits, signed

_PAIRS = (0, 2, 4, 6)
_NIBBLES = (0, 4)


def q2_k(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, 16:80].view(n, 2, 32), _PAIRS, 3, out.view(n, 2, 4, 32))
    scales = half(blocks, 80) * (blocks[:, :16] & 15).float()
    minima = half(blocks, 82) * (blocks[:, :16] >> 4).float()
    out.view(n, 16, 16).mul_(scales[:, :, None]).sub_(minima[:, :, None])


def q3_k(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, 32:96].view(n, 2, 32), _PAIRS, 3, out.view(n, 2, 4, 32))
    # A third bit that is set means no offset: q = two bits - 4 · (1 - third bit).
    add_bits(blocks[:, :32], range(8), 1, 4, out.view(n, 8, 32))
    out.sub_(4)
    scales = torch.empty(n, 16)
    put_bits(blocks[:, 96:104], _NIBBLES, 15, scales.view(n, 2, 8))
    add_bits(blocks[:, 104:108], _PAIRS, 3, 16, scales.view(n, 4, 4))
    scales.sub_(32).mul_(half(blocks, 108))
    out.view(n, 16, 16).mul_(scales[:, :, None])


def q4_k(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, 16:].view(n, 4, 32), _NIBBLES, 15, out.view(n, 4, 2, 32))
    _scale_eighths(blocks, out)


def q5_k(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, 48:].view(n, 4, 32), _NIBBLES, 15, out.view(n, 4, 2, 32))
    add_bits(blocks[:, 16:48], range(8), 1, 16, out.view(n, 8, 32))
    _scale_eighths(blocks, out)


def q6_k(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, :128].view(n, 2, 64), _NIBBLES, 15, out.view(n, 2, 2, 64))
    add_bits(blocks[:, 128:192].view(n, 2, 32), _PAIRS, 3, 16, out.view(n, 2, 4, 32))
    scales = signed(blocks[:, 192:208]).mul_(half(blocks, 208))
    out.sub_(32).view(n, 16, 16).mul_(scales[:, :, None])


def _scale_eighths(blocks: torch.Tensor, out: torch.Tensor) -> None:
    """Apply the 8 scales and minima of each block."""
    scales, minima = eighths(blocks)
    out.view(len(blocks), 8, 32).mul_(scales[:, :, None]).sub_(minima[:, :, None])


def eighths(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The 8 scales and 8 minima of Q4_K and Q5_K blocks, packed into bytes 4 to 16: float32 [n, 8].

    Four bytes hold the first four scales, four the first four minima, in their low 6 bits. The last
    four bytes hold the low nibbles of the other scales (low) and minima (high), whose top two bits
    are those of the first eight bytes.
    """
    n = len(blocks)
    first, last = blocks[:, 4:12].view(n, 2, 4), blocks[:, 12:16]
    parts = torch.empty(n, 2, 2, 4)  # scale or minimum, first or second four
    parts[:, :, 0] = first & 63
    parts[:, 0, 1] = (last & 15) | ((first[:, 0] >> 2) & 48)
    parts[:, 1, 1] = (last >> 4) | ((first[:, 1] >> 2) & 48)
    return parts[:, 0].reshape(n, 8).mul_(half(blocks, 0)), parts[:, 1].reshape(n, 8).mul_(
        half(blocks, 2)
    )
