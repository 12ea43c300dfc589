"""What this process may use of the machine: cores and memory, as affinity and cgroup allow.

Reads the system, decides nothing. Limits of containers count, not what the host has.
"""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath

_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_MOST_DIGITS = 19
_UNLIMITED_BYTES = 1 << 60


def usable_threads() -> int:
    """Cores in this process's affinity mask, at most its cgroup's CPU quota rounded up."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def available_bytes() -> int:
    """Memory that can be had now: what the system can give, at most what the cgroup leaves."""
    return min(_system_available_bytes(), _cgroup_left_bytes())


def _cpu_quota() -> float | None:
    """CPUs' worth of time that the tightest limit grants, if there is one."""
    quotas = [quota for folder in _own_groups() if (quota := _quota_v2(folder)) is not None]
    if quotas:
        return min(quotas)
    quota = _number(_CGROUP / "cpu/cpu.cfs_quota_us")
    period = _number(_CGROUP / "cpu/cpu.cfs_period_us")
    return quota / period if quota and period else None


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()  # "quota period" or "max period"
    if len(words) != 2:
        return None
    quota, period = map(_whole, words)
    return quota / period if quota and period else None


def _own_groups() -> list[Path]:
    """Version 2: this process's group and those around it. In a container the root is its own."""
    own = PurePosixPath("/")
    for line in _read(_MEMBERSHIP).splitlines():
        if line.startswith("0::/") and ".." not in line:
            own = PurePosixPath(line.removeprefix("0::"))
    parts = own.parts[1:]
    return [_CGROUP.joinpath(*parts[:n]) for n in range(len(parts) + 1)]


def _system_available_bytes() -> int:
    for line in _read(_MEMINFO).splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "MemAvailable:":
            kib = _whole(words[1])
            if kib is not None:
                return kib * 1024
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return pages * page_bytes // 2


def _cgroup_left_bytes() -> int:
    """The least that a limit leaves, without the file cache that the kernel would give back."""
    left = [_left_bytes(folder, "memory.max", "memory.current") for folder in _own_groups()]
    v1 = _left_bytes(_CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    return min(*left, v1)


def _left_bytes(folder: Path, limit_file: str, use_file: str) -> int:
    limit, use = _number(folder / limit_file), _number(folder / use_file)
    if limit is None or use is None or limit >= _UNLIMITED_BYTES:
        return _UNLIMITED_BYTES
    return max(0, limit - use + _inactive_file_bytes(folder / "memory.stat"))


def _inactive_file_bytes(stat: Path) -> int:
    found = 0
    for line in _read(stat).splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):  # version 1 has both: with children
            found = max(found, _whole(value) or 0)
    return found


def _number(path: Path) -> int | None:
    return _whole(_read(path).strip())


def _whole(word: str) -> int | None:
    """The number that `word` spells; None for "max", a minus sign or anything else."""
    return int(word) if word.isdigit() and len(word) <= _MOST_DIGITS else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
