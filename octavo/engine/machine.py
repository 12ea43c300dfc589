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
    except (AttributeError, OSError):  # not Linux, or a sandbox that refuses the call
        cores = os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def available_bytes() -> int:
    """Memory that can be had now: what the system can give, at most what the cgroup leaves."""
    return min(_system_available_bytes(), _cgroup_left_bytes())


def _cpu_quota() -> float | None:
    """CPUs' worth of time that the tightest limit grants, if there is one."""
    quotas = [
        *map(_quota_v2, _groups(_CGROUP, "")),
        *map(_quota_v1, _groups(_CGROUP / "cpu", "cpu")),
    ]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()  # "quota period" or "max period"
    if len(words) != 2:
        return None
    quota, period = map(_whole, words)
    return quota / period if quota and period else None


def _quota_v1(folder: Path) -> float | None:
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _groups(root: Path, controller: str) -> list[Path]:
    """Under `root`, this process's group and those around it. `controller` "" is version 2.

    In a container `root` itself is its own group, and the path outside may still be what is named.
    """
    own = PurePosixPath("/")
    for line in _read(_MEMBERSHIP).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") and path.startswith("/") and ".." not in path:
            own = PurePosixPath(path)
    parts = own.parts[1:]
    return [root.joinpath(*parts[:n]) for n in range(len(parts) + 1)]


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
    v2 = [_left_bytes(each, "memory.max", "memory.current") for each in _groups(_CGROUP, "")]
    v1 = [
        _left_bytes(each, "memory.limit_in_bytes", "memory.usage_in_bytes")
        for each in _groups(_CGROUP / "memory", "memory")
    ]
    return min(*v2, *v1)


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
