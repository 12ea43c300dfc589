"""Accelerators: memory, bandwidth and arithmetic as their makers state them. No prices.

Arithmetic is dense: twice as much stands in brochures that count sparsity. Memory is in bytes, so
that a maker's GB and a driver's GiB cannot be mixed. What is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.core.errors import ConfigError

GB, MIB, GIB = 10**9, 1 << 20, 1 << 30
TERA = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """`memory_bytes`: nominal. `visible_bytes`: what a driver reports, where it was measured.
    `link_bytes_per_second`: to the other GPUs of a machine, one way."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: float
    bf16_flops: float
    fp8_flops: float | None = None
    fp4_flops: float | None = None
    link_bytes_per_second: float | None = None
    visible_bytes: int | None = None

    @property
    def usable_bytes(self) -> int:
        """What a process can see."""
        return self.visible_bytes or self.memory_bytes

    def flops(self, weights: str) -> float:
        """Dense operations a second with weights of this format: integers of 4 bits and formats
        that the chip cannot multiply are widened to bfloat16 first."""
        if weights in ("fp8", "int8") and self.fp8_flops:
            return self.fp8_flops
        if weights in ("fp4", "mxfp4") and self.fp4_flops:
            return self.fp4_flops
        return self.bf16_flops / 2 if weights == "fp32" else self.bf16_flops


def _gpu(
    name: str,
    memory_bytes: int,
    tb_per_second: float,
    bf16: float,
    fp8: float | None = None,
    fp4: float | None = None,
    *,
    link_gb: float | None = None,
    visible_bytes: int | None = None,
) -> GPU:
    """Arithmetic in TFLOP/s, the link in GB/s both ways together, as data sheets have it."""
    return GPU(
        name=name,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_second=tb_per_second * TERA,
        bf16_flops=bf16 * TERA,
        fp8_flops=None if fp8 is None else fp8 * TERA,
        fp4_flops=None if fp4 is None else fp4 * TERA,
        link_bytes_per_second=None if link_gb is None else link_gb * GB / 2,
        visible_bytes=visible_bytes,
    )


GPUS: Mapping[str, GPU] = MappingProxyType(
    {
        one.name: one
        for one in (
            _gpu("A10", 24 * GB, 0.600, 125),
            _gpu("A10G", 24 * GB, 0.600, 70),
            _gpu("L4", 24 * GIB, 0.300, 121, 242),
            _gpu("L40S", 46_068 * MIB, 0.864, 362, 733),
            _gpu("RTX4090", 24 * GB, 1.008, 165.2, 330.3),
            _gpu("RTX5090", 32 * GB, 1.792, 209.5, 419),
            _gpu("RTXPRO6000", 97_887 * MIB, 1.792, 467.8, 935.6),
            _gpu("A100-40", 40 * GB, 1.555, 312, link_gb=600),
            _gpu("A100", 80 * GB, 2.039, 312, link_gb=600),
            _gpu("A100-PCIE", 80 * GB, 1.935, 312),
            _gpu("H100-PCIE", 80 * GB, 2.0, 756.5, 1_513),
            _gpu(
                *("H100", 80 * GIB, 3.35, 989, 1_978),
                link_gb=900,
                visible_bytes=round(79.18 * GIB),
            ),
            _gpu("H200", 141 * GB, 4.8, 989, 1_978, link_gb=900),
            _gpu("B200", 180 * GIB, 7.7, 2_250, 4_500, 9_000, link_gb=1_800),
            _gpu("B300", 268 * GIB, 7.75, 2_250, 4_500, 14_000, link_gb=1_800),
            _gpu("GB200", 189_471 * MIB, 8.0, 2_500, 5_000, 10_000, link_gb=1_800),
            _gpu("GB300", 284_208 * MIB, 8.0, 2_500, 5_000, link_gb=1_800),
            _gpu("MI300X", 192 * GB, 5.3, 1_307, 2_615, link_gb=896),
            _gpu("MI355X", 288 * GB, 8.0, 2_516, 5_033, 10_066),
        )
    }
)


def gpu_called(name: str) -> GPU:
    """The GPU of that name, whatever its case; raises ConfigError."""
    found = GPUS.get(name.upper().replace(" ", ""))
    if found is None:
        raise ConfigError(f"gpu is {name[:40]!a}; known are {', '.join(GPUS)}", param="gpu")
    return found
