"""GGUF formats whose bits are codes, not steps of a ladder: code books, small floats, base three.

Owns their layouts and the tables that a few lines define. Formats whose tables are a list of
hundreds of chosen points (IQ1, IQ2, IQ3) are in `gguf_library`.
    IQ4_NL  d f16 · 16 bytes: element i in the low nibble of byte i, i + 16 in the high one
    IQ4_XS  d f16 · 8 scales of 6 bits, less 32: high bits in 2 bytes, low in 4 · 8 × 16 bytes
    TQ1_0   48 + 4 bytes of base-three digits, 5 and 4 a byte · d f16; digit less 1
    TQ2_0   64 bytes of 2 bits, less 1 · d f16
    MXFP4   an exponent byte · 16 bytes of 4-bit floats as in IQ4_NL
    NVFP4   4 scales of 8-bit float · 4 × 8 bytes of 4-bit floats
"""

from __future__ import annotations

import torch

from octavo.compute.gguf_block import add_bits, half, put_bits, put_codes

# IQ4's sixteen levels: denser around zero, as weights are.
_LEVELS = torch.tensor(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    dtype=torch.float32,
)
_PAIRS = (0, 2, 4, 6)
_POWERS_OF_3 = (1, 3, 9, 27, 81)


def _small_floats() -> torch.Tensor:
    """All values of a float with sign, 2 bits of exponent and 1 of mantissa, doubled.

    Doubled they are whole numbers; the scales are halved. Zero has no sign. Source: OCP MX 1.0.
    """
    halves = [0, 1] + [mantissa << exponent for exponent in range(3) for mantissa in (2, 3)]
    return torch.tensor(halves + [-value for value in halves]).float()


def _byte_exponents() -> torch.Tensor:
    """Half of 2^(byte - 127), for all bytes. Source: E8M0 of OCP MX 1.0."""
    return torch.tensor([2.0 ** (byte - 128) for byte in range(256)])


def _byte_floats() -> torch.Tensor:
    """Half of an 8-bit float: 4 bits of exponent (bias 7), 3 of mantissa, the top bit ignored.

    The code 0x7F, which is not a number, counts as zero.
    """
    scales = []
    for byte in range(256):
        exponent, mantissa = byte >> 3 & 15, byte & 7
        value = mantissa * 2.0**-9 if not exponent else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        scales.append(0.0 if byte == 0x7F else value / 2)
    return torch.tensor(scales)


_SMALL_FLOATS, _BYTE_EXPONENTS, _BYTE_FLOATS = _small_floats(), _byte_exponents(), _byte_floats()


def iq4_nl(blocks: torch.Tensor, out: torch.Tensor) -> None:
    put_codes(blocks[:, 2:], _LEVELS, out)
    out.mul_(half(blocks, 0))


def iq4_xs(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_codes(blocks[:, 8:].view(n, 8, 16), _LEVELS, out)
    scales = torch.empty(n, 8)
    put_bits(blocks[:, 4:8, None], (0, 4), 15, scales.view(n, 4, 2, 1))
    add_bits(blocks[:, 2:4, None], _PAIRS, 3, 16, scales.view(n, 2, 4, 1))
    scales.sub_(32).mul_(half(blocks, 0))
    out.view(n, 8, 32).mul_(scales[:, :, None])


def tq1_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    """A byte is a fraction of 256 in base three: times a power of 3, its first digit is next."""
    n = len(blocks)
    start = 0
    for begin, end, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        width = end - begin
        for power in _POWERS_OF_3[:digits]:
            shifted = blocks[:, begin:end] * power  # uint8: whole digits fall off the top
            out[:, start : start + width] = (shifted.short() * 3) >> 8
            start += width
    out.view(n, 256).sub_(1).mul_(half(blocks, 52))


def tq2_0(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_bits(blocks[:, :64].view(n, 2, 32), _PAIRS, 3, out.view(n, 2, 4, 32))
    out.sub_(1).mul_(half(blocks, 64))


def mxfp4(blocks: torch.Tensor, out: torch.Tensor) -> None:
    put_codes(blocks[:, 1:], _SMALL_FLOATS, out)
    out.mul_(_BYTE_EXPONENTS[blocks[:, :1].int()])


def nvfp4(blocks: torch.Tensor, out: torch.Tensor) -> None:
    n = len(blocks)
    put_codes(blocks[:, 4:].view(n, 4, 8), _SMALL_FLOATS, out)
    out.view(n, 4, 16).mul_(_BYTE_FLOATS[blocks[:, :4].int()][:, :, None])
