"""GGUF block formats as float32. Owns how bytes become weights; knows no files and no names.

Source: the public descriptions of the formats. All of them cut a row into blocks of 32 elements:
    Q4_0  scale f16 · 16 bytes: element i in the low nibble of byte i, i + 16 in the high one; q - 8
    Q4_1  scale f16 · minimum f16 · 16 bytes as above; q · scale + minimum
    Q5_0  scale f16 · 32 fifth bits · 16 bytes as above; q - 16
    Q5_1  scale f16 · minimum f16 · 32 fifth bits · 16 bytes; q · scale + minimum
    Q8_0  scale f16 · 32 signed bytes
Values equal q · scale (+ minimum) in float32, one rounding per operation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.core.errors import ModelFileError
from octavo.core.gguf_types import GGUF_TYPES

# Blocks decoded at a time: the float32 tile (1 MiB) and its parts stay in a core's own cache.
_TILE_BLOCKS = 8192
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantise(raw: torch.Tensor, type_name: str, *, name: str) -> torch.Tensor:
    """Decode `raw`, uint8 [..., row bytes], to float32 [..., row elements].

    `name` is the tensor's, for the message where `type_name` is not read.
    """
    check_readable(type_name, name=name)
    plain = PLAIN.get(type_name)
    if plain is not None:
        return raw.view(plain).float()
    block_bytes = BLOCK_BYTES[type_name]
    blocks = raw.reshape(-1, block_bytes)
    out = torch.empty(len(blocks), 32, dtype=torch.float32)
    decode = _DECODERS[type_name]
    for start in range(0, len(blocks), _TILE_BLOCKS):
        decode(blocks[start : start + _TILE_BLOCKS], out[start : start + _TILE_BLOCKS])
    return out.reshape(*raw.shape[:-1], raw.shape[-1] // block_bytes * 32)


def check_readable(type_name: str, *, name: str) -> None:
    """Refuse a type that `dequantise` does not decode."""
    if type_name not in READABLE:
        raise ModelFileError(
            f"tensor {name!a} is stored as {type_name}, which is not read yet; "
            f"read are {', '.join(READABLE)}",
            param=name,
        )


def _halves(blocks: torch.Tensor, n: int) -> list[torch.Tensor]:
    """The first `n` f16 values of each block as float32 columns [blocks, 1]."""
    values = blocks[:, : 2 * n].contiguous().view(torch.float16).float()
    return [values[:, i : i + 1] for i in range(n)]


def _nibbles(packed: torch.Tensor, out: torch.Tensor) -> None:
    """16 bytes a block -> 32 values from 0 to 15."""
    out[:, :16] = packed & 15
    out[:, 16:] = packed >> 4


def _add_fifth_bits(packed: torch.Tensor, out: torch.Tensor) -> None:
    """Add 16 where bit i of the 32-bit word is set: bits 0 to 7 are the first byte's, low first."""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = (packed[:, :, None] >> shifts) & 1
    out.add_(bits.reshape(len(packed), 32), alpha=16)


def _q4_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    (scale,) = _halves(blocks, 1)
    _nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(scale)


def _q4_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    scale, minimum = _halves(blocks, 2)
    _nibbles(blocks[:, 4:], out)
    out.mul_(scale).add_(minimum)


def _q5_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    (scale,) = _halves(blocks, 1)
    _nibbles(blocks[:, 6:], out)
    _add_fifth_bits(blocks[:, 2:6], out)
    out.sub_(16).mul_(scale)


def _q5_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    scale, minimum = _halves(blocks, 2)
    _nibbles(blocks[:, 8:], out)
    _add_fifth_bits(blocks[:, 4:8], out)
    out.mul_(scale).add_(minimum)


def _q8_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    (scale,) = _halves(blocks, 1)
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(scale)


_DECODERS: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
}
READABLE = (*PLAIN, *_DECODERS)
BLOCK_BYTES = {stored.name: stored.block_bytes for stored in GGUF_TYPES.values()}
