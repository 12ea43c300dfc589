"""One benchmark's result as a file: figures, the command that made them, and the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures by."""
    model, has = platform.processor() or platform.machine(), list[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
        flags = next(line.split(":", 1)[1].split() for line in lines if line.startswith("flags"))
        has = [name for name in VECTOR_FLAGS if name in flags]
    except (OSError, StopIteration):
        pass
    return {
        "cpu": model,
        "vectors": has,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def save(name: str, figures: dict[str, Any], *, module: str = "") -> None:
    """Save `figures` as results/<name>.json, with the command and the machine.

    `module` is what was run, by default benchmarks.<name>.
    """
    RESULTS.mkdir(exist_ok=True)
    record = {
        "benchmark": name,
        "command": f"python -m {module or f'benchmarks.{name}'} {' '.join(sys.argv[1:])}".strip(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "figures": figures,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def write(name: str, figures: dict[str, Any]) -> None:
    """Save `figures`, and print them."""
    save(name, figures)
    width = max(map(len, figures))
    print(name)
    for label, value in figures.items():
        print(f"  {label:<{width}}  {value}")


def median_ms(work: Callable[[], object], *, rounds: int = 9) -> float:
    """Median wall time of `work`, in milliseconds, after one run that does not count."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(times), 4)
