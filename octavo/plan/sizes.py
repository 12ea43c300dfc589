"""Sizes as people write them. GB is 10⁹ bytes and GiB 2³⁰; a number without a unit is refused."""

from __future__ import annotations

import math
import re

from octavo.core.errors import ConfigError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB = 10**9
MAX_BYTES = 1 << 50
_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": GB,
    "TB": 10**12,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1 << 40,
}
_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?i?B)\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str, option: str) -> int:
    """'42GiB' → 45097156608; raises ConfigError naming the option."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{option} is {text[:40]!a}; give a size with its unit, as 80GB (10^9 bytes) or "
            "79.18GiB (2^30 bytes)",
            param=option,
        )
    n_bytes = float(found[1]) * _UNITS[found[2].upper()]
    if not math.isfinite(n_bytes) or n_bytes > MAX_BYTES:
        raise ConfigError(f"{option} is more than {MAX_BYTES} bytes", param=option)
    return round(n_bytes)


def gib(n_bytes: float, digits: int = 2) -> str:
    """'51.38 GiB'."""
    return f"{n_bytes / GIB:,.{digits}f} GiB"


def binary(n_bytes: float) -> str:
    """The largest binary unit that leaves a whole part: 327680 → '320 KiB', 1536 → '1.5 KiB'."""
    value, unit = float(n_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    shown = f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{shown} {unit}"
