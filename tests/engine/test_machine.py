"""Cores and memory as containers limit them: fake cgroup trees of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.engine import machine

Write = Callable[[str, str], None]
GIB = 1 << 30


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of the fake system: 8 cores, 64 GiB available, no limits until written."""
    monkeypatch.setattr(machine, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)

    def write_file(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write_file("meminfo", f"MemTotal: 99 kB\nMemAvailable:   {64 * GIB // 1024} kB\n")
    return write_file


def test_without_limits_everything_may_be_used(write: Write) -> None:
    assert machine.usable_threads() == 8
    assert machine.available_bytes() == 64 * GIB


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("200000 100000", 2), ("250000 100000", 3), ("5000 100000", 1), ("max 100000", 8),
     ("9900000 100000", 8)],
)  # fmt: skip
def test_a_version_2_quota_bounds_the_threads(write: Write, quota: str, threads: int) -> None:
    write("cgroup/cpu.max", quota + "\n")
    assert machine.usable_threads() == threads


@pytest.mark.parametrize(("quota", "threads"), [("150000", 2), ("-1", 8), ("50000", 1)])
def test_a_version_1_quota_bounds_the_threads(write: Write, quota: str, threads: int) -> None:
    write("cgroup/cpu/cpu.cfs_quota_us", quota + "\n")
    write("cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert machine.usable_threads() == threads


def test_a_group_and_those_around_it_all_count(write: Write) -> None:
    write("membership", "0::/system.slice/octavo.service\n")
    write("cgroup/system.slice/cpu.max", "300000 100000\n")
    write("cgroup/system.slice/octavo.service/cpu.max", "600000 100000\n")
    write("cgroup/system.slice/octavo.service/memory.max", f"{4 * GIB}\n")
    write("cgroup/system.slice/octavo.service/memory.current", f"{GIB}\n")
    assert machine.usable_threads() == 3
    assert machine.available_bytes() == 3 * GIB


def test_a_version_1_group_and_those_around_it_all_count(write: Write) -> None:
    write("membership", "5:memory:/system.slice/octavo.service\n4:cpu,cpuacct:/a/b\n1:name=x:/c\n")
    write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write("cgroup/memory/memory.usage_in_bytes", f"{9 * GIB}\n")
    write("cgroup/memory/system.slice/octavo.service/memory.limit_in_bytes", f"{4 * GIB}\n")
    write("cgroup/memory/system.slice/octavo.service/memory.usage_in_bytes", f"{GIB}\n")
    write("cgroup/cpu/a/cpu.cfs_quota_us", "300000\n")
    write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    assert machine.usable_threads() == 3
    assert machine.available_bytes() == 3 * GIB


def test_a_container_whose_path_is_that_of_its_host_keeps_its_own_limit(write: Write) -> None:
    write("membership", "5:memory:/docker/0123\n0::/docker/0123\n")
    write("cgroup/memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    write("cgroup/memory/memory.usage_in_bytes", f"{GIB}\n")
    assert machine.available_bytes() == 3 * GIB


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_process_bound_to_one_core_uses_one() -> None:
    source = (
        "import os\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from octavo.engine.machine import usable_threads\n"
        "print(usable_threads())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_a_sandbox_that_refuses_the_affinity_call_leaves_the_count(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(pid: int) -> set[int]:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "sched_getaffinity", refuses, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    write("cgroup/cpu.max", "400000 100000\n")
    assert machine.usable_threads() == 4


@pytest.mark.parametrize("membership", ["0::/../other\n", "1:cpu:/x\n", "0::\n", "nonsense"])
def test_a_membership_outside_of_the_tree_is_not_followed(write: Write, membership: str) -> None:
    write("membership", membership)
    write("cgroup/cpu.max", "200000 100000\n")
    write("other/cpu.max", "100000 100000\n")
    assert machine.usable_threads() == 2


def test_a_version_2_limit_leaves_out_the_file_cache(write: Write) -> None:
    write("cgroup/memory.max", f"{8 * GIB}\n")
    write("cgroup/memory.current", f"{5 * GIB}\n")
    assert machine.available_bytes() == 3 * GIB
    write("cgroup/memory.stat", f"anon 1\ninactive_file {2 * GIB}\nactive_file 7\n")
    assert machine.available_bytes() == 5 * GIB


def test_a_version_1_limit_counts_children(write: Write) -> None:
    write("cgroup/memory/memory.limit_in_bytes", f"{8 * GIB}\n")
    write("cgroup/memory/memory.usage_in_bytes", f"{5 * GIB}\n")
    write("cgroup/memory/memory.stat", f"inactive_file 1\ntotal_inactive_file {GIB}\n")
    assert machine.available_bytes() == 4 * GIB


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_no_limit_is_no_limit(write: Write, limit: str) -> None:
    for folder, limit_file, use_file in (
        ("cgroup", "memory.max", "memory.current"),
        ("cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        write(f"{folder}/{limit_file}", limit)
        write(f"{folder}/{use_file}", str(GIB))
    assert machine.available_bytes() == 64 * GIB


def test_an_exceeded_limit_leaves_nothing(write: Write) -> None:
    write("cgroup/memory.max", "1000")
    write("cgroup/memory.current", "2000")
    assert machine.available_bytes() == 0


def test_the_system_bounds_a_generous_limit(write: Write) -> None:
    write("cgroup/memory.max", str(640 * GIB))
    write("cgroup/memory.current", "0")
    assert machine.available_bytes() == 64 * GIB


@pytest.mark.parametrize(
    "garbage",
    ["", "\n", "200000 0", "200000 abc", "abc 100000", "-5 100000", "1 2 3",
     "9" * 5000 + " 1", "\x00\xff", "1e5 100000", "0 100000"],
    ids=lambda text: ascii(text)[:20],
)  # fmt: skip
def test_garbage_limits_nothing(write: Write, garbage: str) -> None:
    for name in (
        "cpu.max",
        "cpu/cpu.cfs_quota_us",
        "cpu/cpu.cfs_period_us",
        "memory.max",
        "memory.current",
        "memory.stat",
        "memory/memory.limit_in_bytes",
    ):
        write(f"cgroup/{name}", garbage)
    write("membership", garbage)
    assert machine.usable_threads() == 8
    assert machine.available_bytes() == 64 * GIB


@pytest.mark.parametrize("meminfo", ["", "MemAvailable:", "MemAvailable: x kB", "\x00"])
def test_without_meminfo_half_of_the_memory_is_taken(write: Write, meminfo: str) -> None:
    write("meminfo", meminfo)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.available_bytes() == total // 2
