"""`octavo usage` over a gigabyte of coding-agent logs: the first run, and the next one.

The logs are made up and deleted again: half of their bytes are tool results, which hold no tokens.
Memory is the largest sum over all processes at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write

MEGABYTE = 10**6
SAMPLE_SECONDS = 0.02
WORDS = ("def", "self", "the", "value", "print(x)", "{}", "\n", "\t", "é", "'quoted'", '"text"')


def row(session: str, at: float, **rest: Any) -> str:
    """One line with the fields that every row has."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1_793_500_000 + at))
    envelope = {"parentUuid": "0", "cwd": "/home/user/project", "sessionId": session}
    return json.dumps({**envelope, "timestamp": stamp, **rest}, separators=(",", ":")) + "\n"


def write_session(path: Path, rng: random.Random, text: str) -> int:
    """A session of up to 200 requests. Returns its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    context, at, size = 15_000, rng.uniform(0, 2e6), 0
    with path.open("w", encoding="utf-8") as file:
        for turn in range(rng.randrange(10, 200)):
            at += rng.choice((5, 20, 60, 400))
            start = rng.randrange(len(text) // 2)
            result = text[start : start + int(rng.expovariate(1 / 7000))]
            new = len(result) // 4 + 100
            size += file.write(row(path.stem, at, type="user", message={"content": result}))
            usage = {
                "input_tokens": 4,
                "cache_creation_input_tokens": new,
                "cache_read_input_tokens": context,
                "cache_creation": {"ephemeral_5m_input_tokens": new},
            }
            context = min(180_000, context + new)
            for block in range(rng.choice((1, 2, 3))):
                message = {
                    "id": f"msg_{path.stem}_{turn}",
                    "model": "claude-opus-4-5-20251101",
                    "content": [{"type": "text", "text": result[: int(rng.expovariate(1 / 2500))]}],
                    "stop_reason": "tool_use" if block else None,
                    "usage": {**usage, "output_tokens": 500 * block + 1},
                }
                size += file.write(row(path.stem, at + block, type="assistant", message=message))
    return size


def write_logs(folder: Path, n_bytes: int) -> int:
    """Sessions of several projects until they have `n_bytes`. Returns how many."""
    rng = random.Random(1)
    text = " ".join(rng.choice(WORDS) for _ in range(60_000))
    size = count = 0
    while size < n_bytes:
        count += 1
        size += write_session(folder / f"p{count % 9}" / f"s{count:05}.jsonl", rng, text)
    return count


def run(logs: Path, home: Path) -> tuple[float, int]:
    """Seconds of one run, and the most bytes that all its processes held at once."""
    command = [sys.executable, "-m", "octavo", "usage", "--json", "--logs", str(logs)]
    start, most = time.perf_counter(), 0
    environment = {**os.environ, "XDG_DATA_HOME": str(home)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        while process.poll() is None:
            most = max(most, held(process.pid))
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, most


def held(pid: int) -> int:
    """Bytes in memory of a process and its children (Linux); shared pages count for each."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(held(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as folder:
        logs, home = Path(folder) / "logs", Path(folder) / "home"
        sessions = write_logs(logs, megabytes * MEGABYTE)
        used = os.times()
        first, most = run(logs, home)
        after = os.times()
        second, _ = run(logs, home)
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    write(
        "usage_logs",
        {
            "logs, MB": megabytes,
            "sessions": sessions,
            "first run, s": round(first, 1),
            "CPU time of it, all processes, s": round(cpu, 1),
            "memory of it, all processes, MB": round(most / MEGABYTE),
            "next run, nothing new, s": round(second, 1),
        },
    )


if __name__ == "__main__":
    main()
