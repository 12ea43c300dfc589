"""From process start to the first token of `octavo generate`, the model being on disk."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from benchmarks.record import write

PROMPT = "The capital of France is"


def first_output_seconds(command: list[str]) -> float:
    """Seconds until the first byte on standard output; the process is then awaited."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        elapsed = time.perf_counter() - start
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    octavo = [sys.executable, "-m", "octavo"]
    commands = {
        "octavo --help": [*octavo, "--help"],
        "import torch": [sys.executable, "-c", "import torch; print(1)"],
        "octavo generate, first token": [
            *octavo, "generate", PROMPT, "--temperature", "0", "--max-tokens", "8",
        ],
    }  # fmt: skip
    figures = {}
    for name, command in commands.items():
        first_output_seconds(command)  # files into the page cache; the model onto the disk
        times = [first_output_seconds(command) for _ in range(rounds)]
        figures[f"{name}, s, median of {rounds}"] = round(statistics.median(times), 3)
    write("start", figures)


if __name__ == "__main__":
    main()
