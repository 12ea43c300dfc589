"""Figures about this process, under the names that every exporter uses. Linux has all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SELF = Path("/proc/self")


class ProcessFigures(NamedTuple):
    """None where the system does not tell. `started_at`: when the server began, in unix time."""

    cpu_seconds: float
    resident_bytes: int | None
    open_files: int | None
    started_at: float

    @classmethod
    def now(cls, *, started_at: float) -> ProcessFigures:
        spent = os.times()
        try:
            pages = int((SELF / "statm").read_text(encoding="ascii").split()[1])
            resident: int | None = pages * os.sysconf("SC_PAGE_SIZE")
            open_files: int | None = len(os.listdir(SELF / "fd"))
        except (OSError, ValueError, IndexError):
            resident = open_files = None
        return cls(spent.user + spent.system, resident, open_files, started_at)
