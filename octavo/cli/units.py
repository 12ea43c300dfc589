"""Sizes and counts as people read them. KiB, MiB and GiB are powers of 1024."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(n_bytes: int) -> str:
    """46080 → '45.0 KiB'; below 1 KiB whole bytes."""
    value = float(n_bytes)
    for unit in UNITS[:-1]:
        if abs(value) < 1024:
            return f"{n_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {UNITS[-1]}"


def count(number: int) -> str:
    """131072 → '131,072'."""
    return f"{number:,}"
