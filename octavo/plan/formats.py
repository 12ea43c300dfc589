"""How numbers are stored: bytes of a vector of K or V, bits of a weight, scales included.

Knows no models. The byte counts are those of the formats themselves, not of one engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.core.errors import ConfigError

WHOLE_VECTOR = 0


@dataclass(frozen=True, slots=True)
class KVFormat:
    """`bits` an element, and `scale_bytes` for each `group` elements of one head's K or V.

    Without `scale_bytes` a scale is kept per layer at most, which is not worth counting.
    """

    name: str
    bits: int
    group: int = WHOLE_VECTOR
    scale_bytes: int = 0

    def vector_bytes(self, dim: int) -> int:
        """Bytes of `dim` elements with their scales."""
        groups = -(-dim // (self.group or dim))
        return -(-dim * self.bits // 8) + groups * self.scale_bytes

    def rule(self) -> str:
        """The format in words."""
        if not self.scale_bytes:
            return f"{self.bits} bits an element"
        over = f"{self.group} elements" if self.group else "head and token"
        return f"{self.bits} bits an element and {self.scale_bytes} B for each {over}"


KV_FORMATS: Mapping[str, KVFormat] = MappingProxyType(
    {
        one.name: one
        for one in (
            KVFormat("float32", 32),
            KVFormat("bfloat16", 16),
            KVFormat("float16", 16),
            KVFormat("fp8", 8),
            KVFormat("int8", 8),
            KVFormat("fp8_per_token_head", 8, WHOLE_VECTOR, 4),
            KVFormat("int8_per_token_head", 8, WHOLE_VECTOR, 4),
            KVFormat("int4_g32", 4, 32, 2),
            KVFormat("int4_g32_zero", 4, 32, 4),
            KVFormat("nvfp4", 4, 16, 1),
            KVFormat("mxfp4", 4, 32, 1),
            KVFormat("q8_0", 8, 32, 2),
            KVFormat("q4_0", 4, 32, 2),
        )
    }
)
KV_ALIASES = MappingProxyType({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"})

# Bits a weight. int4: one 16-bit scale for each 128 weights; fp4 (NVFP4) and mxfp4: one of 8 bits
# for each 16 and 32; int8 and fp8: scales per row at most.
WEIGHT_BITS: Mapping[str, float] = MappingProxyType(
    {"fp32": 32.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.5, "mxfp4": 4.25, "int4": 4.125}
)


def kv_format(name: str) -> KVFormat:
    """The format called `name`; raises ConfigError."""
    found = KV_FORMATS.get(KV_ALIASES.get(name, name))
    if found is None:
        raise ConfigError(
            f"kv_cache_dtype is {name[:40]!a}; known are auto, {', '.join(KV_FORMATS)}",
            param="kv_cache_dtype",
        )
    return found


def weight_bits(name: str) -> float:
    """Bits of one weight stored as `name`; raises ConfigError."""
    found = WEIGHT_BITS.get(name)
    if found is None:
        raise ConfigError(
            f"weights is {name[:40]!a}; known are auto, {', '.join(WEIGHT_BITS)}", param="weights"
        )
    return found
