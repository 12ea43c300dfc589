"""The load of `benchmarks.server_load`, in a process of its own so that its CPU can be told apart.

Reads one plan as JSON from standard input, writes what it saw as JSON to standard output.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.raw_http import Exchange

PATH = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Seen:
    """Per request the seconds of its events since the start; whole answers have one."""

    times: list[list[float]]
    wall_seconds: float
    cpu_seconds: float


def drive(port: int, bodies: list[dict[str, Any]], *, at_seconds: list[float]) -> Seen:
    """Send `bodies`, each at its time, from another process. Raises if one is not answered."""
    plan = json.dumps({"port": port, "bodies": bodies, "at": at_seconds})
    command = [sys.executable, "-m", "benchmarks.server_client"]
    done = subprocess.run(command, input=plan, stdout=subprocess.PIPE, text=True, check=True)
    return Seen(**json.loads(done.stdout))


async def ask(port: int, body: dict[str, Any], at_seconds: float, start: float) -> list[float]:
    """Times of one request's events, the one that only ends them left out."""
    await asyncio.sleep(start + at_seconds - time.perf_counter())
    async with Exchange(port, PATH, body) as answer:
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: {await answer.body()}")
        if not body["stream"]:
            await answer.body()
            return [time.perf_counter() - start]
        times = [time.perf_counter() - start async for _ in answer.events()]
    return times[:-1]  # the last one is [DONE]


async def load(plan: dict[str, Any]) -> Seen:
    start, cpu = time.perf_counter(), time.process_time()
    pairs = zip(plan["bodies"], plan["at"], strict=True)
    times = await asyncio.gather(*(ask(plan["port"], body, at, start) for body, at in pairs))
    return Seen(list(times), time.perf_counter() - start, time.process_time() - cpu)


def main() -> None:
    seen = asyncio.run(load(json.loads(sys.stdin.read())))
    json.dump({name: getattr(seen, name) for name in Seen.__slots__}, sys.stdout)


if __name__ == "__main__":
    main()
