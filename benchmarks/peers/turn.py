"""One process of one engine, from its start to its last figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.entry import Entry
from benchmarks.peers.place import model, python

ROOT = Path(__file__).resolve().parents[2]
MAX_SECONDS = 1_200
# What vLLM's guide recommends to preload; the first is Debian's libtcmalloc-minimal4.
PRELOADS = ("/usr/lib/*/libtcmalloc_minimal.so.4", "{environment}/lib/libiomp5.so")


@dataclass(frozen=True, slots=True)
class Turn:
    version: str
    samples: dict[str, list[float]]


def environment_of(entry: Entry) -> dict[str, str]:
    """Ours without settings of thread libraries, with vLLM's preloads where they exist."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "KMP_"))}
    if entry.adapter == "vllm_engine":
        folder = str(python(entry.environment).parent.parent)
        patterns = [pattern.format(environment=folder) for pattern in PRELOADS]
        found = [str(p) for pattern in patterns for p in Path("/").glob(pattern.lstrip("/"))]
        variables["LD_PRELOAD"] = ":".join(found)
    return variables


def take(entry: Entry, round_number: int, threads: int) -> Turn:
    """Run the entry once. Raises SystemExit with its last words if it fails."""
    command = [str(python(entry.environment)), "-m", "benchmarks.peers.runner", entry.adapter]
    command += [str(model(entry.model)), str(threads), str(round_number)]
    version = ""
    samples: dict[str, list[float]] = {}
    start = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment_of(entry), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(MAX_SECONDS, process.kill)
        limit.start()
        for line in process.stdout:
            if not line.startswith("{"):
                continue  # what an engine prints of its own accord
            told = json.loads(line)
            if "first_token" in told:
                version = told["first_token"]
                told = {"case": "first_token", "value": round(time.perf_counter() - start, 3)}
            samples.setdefault(told["case"], []).append(told["value"])
        limit.cancel()
    if process.returncode:
        raise SystemExit(f"{entry.title} ended with {process.returncode}; see its output above")
    print(f"round {round_number}, {entry.title}: {samples}", file=sys.stderr, flush=True)
    return Turn(version, samples)
