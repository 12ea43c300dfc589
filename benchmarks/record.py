"""One benchmark's result as a file: figures, the command that made them, and the machine."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.bench.environment import machine

RESULTS = Path(__file__).resolve().parent / "results"


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
