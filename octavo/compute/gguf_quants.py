"""GGUF block formats as float32. Owns how bytes become weights; knows no files and no names.

Source: the public descriptions of the formats. A row is cut into blocks; here are those of 32
elements in even steps, the others are in `gguf_k_quants`, `gguf_code_quants` and `gguf_library`:
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

from octavo.compute.gguf_block import add_bits, half, put_bits
from octavo.compute.gguf_code_quants import iq4_nl, iq4_xs, mxfp4, nvfp4, tq1_0, tq2_0
from octavo.compute.gguf_k_quants import q2_k, q3_k, q4_k, q5_k, q6_k
from octavo.compute.gguf_library import LIBRARY_TYPES, library_decoder
from octavo.core.errors import ModelFileError
from octavo.core.gguf_types import GGUF_TYPES

# Elements decoded at a time: the float32 tile (1 MiB) and its parts stay in a core's own cache.
_TILE_ELEMENTS = 1 << 18
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantise(raw: torch.Tensor, type_name: str, *, name: str) -> torch.Tensor:
    """Decode `raw`, uint8 [..., row bytes], to float32 [..., row elements].

    `name` is the tensor's, for the message where `type_name` is not read.
    """
    check_readable(type_name, name=name)
    plain = PLAIN.get(type_name)
    if plain is not None:
        return raw.view(plain).float()
    stored = _BY_NAME[type_name]
    blocks = raw.reshape(-1, stored.block_bytes)
    out = torch.empty(len(blocks), stored.block_elements, dtype=torch.float32)
    decode = _DECODERS.get(type_name) or library_decoder(type_name, name=name)
    step = max(1, _TILE_ELEMENTS // stored.block_elements)
    for start in range(0, len(blocks), step):
        decode(blocks[start : start + step], out[start : start + step])
    return out.reshape(*raw.shape[:-1], -1)


def check_readable(type_name: str, *, name: str) -> None:
    """Refuse a type that `dequantise` does not decode, or not without an optional package."""
    if type_name in LIBRARY_TYPES:
        library_decoder(type_name, name=name)
    elif type_name not in READABLE:
        raise ModelFileError(
            f"tensor {name!a} is stored as {type_name}, which is not read; "
            f"read are {', '.join(READABLE)}",
            param=name,
        )


def _q4_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    _nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(half(blocks, 0))


def _q4_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    _nibbles(blocks[:, 4:], out)
    out.mul_(half(blocks, 0)).add_(half(blocks, 2))


def _q5_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    _nibbles(blocks[:, 6:], out)
    _add_fifth_bits(blocks[:, 2:6], out)
    out.sub_(16).mul_(half(blocks, 0))


def _q5_1(blocks: torch.Tensor, out: torch.Tensor) -> None:
    _nibbles(blocks[:, 8:], out)
    _add_fifth_bits(blocks[:, 4:8], out)
    out.mul_(half(blocks, 0)).add_(half(blocks, 2))


def _q8_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(half(blocks, 0))


def _nibbles(packed: torch.Tensor, out: torch.Tensor) -> None:
    """16 bytes a block -> 32 values from 0 to 15."""
    put_bits(packed, (0, 4), 15, out.view(-1, 2, 16))


def _add_fifth_bits(packed: torch.Tensor, out: torch.Tensor) -> None:
    """Add 16 where bit i of the 32-bit word is set: bits 0 to 7 are the first byte's, low first."""
    add_bits(packed[:, :, None], range(8), 1, 16, out.view(-1, 4, 8, 1))


_DECODERS: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
    "TQ1_0": tq1_0,
    "TQ2_0": tq2_0,
    "MXFP4": mxfp4,
    "NVFP4": nvfp4,
}
READABLE = (*PLAIN, *_DECODERS, *LIBRARY_TYPES)
_BY_NAME = {stored.name: stored for stored in GGUF_TYPES.values()}
BLOCK_BYTES = {name: stored.block_bytes for name, stored in _BY_NAME.items()}
