"""What HTTP costs: the server beside the engine alone, on the default model.

`python -m benchmarks.server_load [part …]` with the parts `throughput`, `streams` and `prompts`.
The server is `octavo serve` in its own process, the client another one whose CPU is measured: on a
machine of few cores it takes them from the server, so that the share is given with it deducted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import write
from benchmarks.server_client import Seen, drive
from benchmarks.soak import served
from octavo import LLM, SamplingParams
from octavo.core.config import EngineConfig
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.build import build
from octavo.engine.types import GenerateRequest
from octavo.server.limits import ServerLimits

MODEL = "smollm2"
OPTIONS = {"max_model_len": 8192, "num_blocks": 4000, "max_num_seqs": 64}
# A slow machine is to be measured, not refused; and nobody wants these requests in a ledger.
QUIET = ["--queue-timeout=3600", "--no-ledger", "--log-level=warning"]
SERVE = "import sys; from octavo.cli.main import main; main(sys.argv[1:])"
AT_ONCE, PROMPT_TOKENS, ANSWER_TOKENS = 64, 64, 64
STREAMS, STREAM_TOKENS, TURNS = 32, 64, 4
RUNNING, RUNNING_TOKENS = 8, 400
LONG_PROMPTS, LONG_TOKENS, LONG_EVERY_SECONDS = 3, 7500, 4.0


def prompts(n: int, n_tokens: int, *, seed: int) -> list[list[int]]:
    """Random ids; different seeds share no block."""
    source = random.Random(seed)
    return [[source.randrange(100, 40_000) for _ in range(n_tokens)] for _ in range(n)]


def bodies(tokens: list[list[int]], max_tokens: int, *, stream: bool) -> list[dict[str, Any]]:
    fields = {"model": MODEL, "temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}
    return [{**fields, "prompt": each, "stream": stream} for each in tokens]


@dataclass(frozen=True, slots=True)
class Server:
    """An `octavo serve` in its own process."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def drive(self, work: list[dict[str, Any]]) -> tuple[Seen, float]:
        """All of `work` at once: what the client saw, and CPU seconds of the server."""
        before = self.cpu_seconds()
        seen = drive(self.port, work, at_seconds=[0.0] * len(work))
        return seen, self.cpu_seconds() - before


@contextlib.contextmanager
def server() -> Iterator[Server]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    command = [sys.executable, "-c", SERVE, "serve", MODEL, "--port=0", *QUIET, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            port = int(first.rpartition(":")[2].removesuffix("/v1\n"))
            time.sleep(0.5)  # the line comes just before the loop starts
            drive(port, bodies(prompts(1, 32, seed=0), 8, stream=True), at_seconds=[0.0])
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def spread_ms(seconds: list[float]) -> str:
    """10th, 50th and 99th percentile and the largest, in milliseconds."""
    ordered = [1e3 * each for each in sorted(seconds)]
    parts = [f"p{part} {ordered[len(ordered) * part // 100]:.2f}" for part in (10, 50, 99)]
    return " ".join([*parts, f"max {ordered[-1]:.2f}"])


def gaps(seen: Seen, requests: range) -> list[float]:
    """Seconds between the events of each stream."""
    found = []
    for times in seen.times[requests.start : requests.stop]:
        found += [later - earlier for earlier, later in itertools.pairwise(times)]
    return found


def throughput() -> dict[str, Any]:
    """64 requests at once: tokens a second offline, and over HTTP whole and streamed."""
    llm = LLM(MODEL, **OPTIONS)
    params = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True)
    work = [{"prompt_token_ids": each} for each in prompts(AT_ONCE, PROMPT_TOKENS, seed=1)]
    llm.generate(work[:4], params)
    llm.clear_cache()
    start, cpu_start = time.perf_counter(), time.process_time()
    llm.generate(work, params)
    offline = time.perf_counter() - start
    offline_cpu = time.process_time() - cpu_start
    cores = llm.info.threads
    llm.close()
    tokens = AT_ONCE * ANSWER_TOKENS
    figures: dict[str, Any] = {
        f"{AT_ONCE} requests, engine alone, tokens/s": round(tokens / offline)
    }
    with server() as own_process:
        for name, stream in (("whole", False), ("streamed", True)):
            work_bodies = bodies(
                prompts(AT_ONCE, PROMPT_TOKENS, seed=2 + stream), ANSWER_TOKENS, stream=stream
            )
            seen, cpu = own_process.drive(work_bodies)
            own = seen.wall_seconds - seen.cpu_seconds / cores
            head = f"{AT_ONCE} requests over HTTP, {name}"
            figures[f"{head}, tokens/s"] = round(tokens / seen.wall_seconds)
            figures[f"{head}, client CPU, s"] = round(seen.cpu_seconds, 3)
            figures[f"{head}, server CPU, engine alone = 1"] = round(cpu / offline_cpu, 3)
            figures[f"{head}, share of the engine alone"] = round(offline / seen.wall_seconds, 3)
            figures[f"{head}, share, client deducted"] = round(offline / own, 3)
    return figures


def streams() -> dict[str, Any]:
    """32 streams: the engine's steps with nobody reading, and with clients over HTTP.

    Both in one process and in turns, so that what else the machine does falls on both.
    """
    built = build(EngineConfig.of(MODEL, **OPTIONS))
    step, times = built.engine.step, list[float]()

    def timed() -> None:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)

    built.engine.step = timed  # type: ignore[method-assign]
    engine = AsyncEngine(built)
    alone, read, between, cpu = list[float](), list[float](), list[float](), [0.0, 0.0, 0.0]
    with served(engine, ServerLimits()) as port:
        for turn in range(-1, TURNS):  # the first one only warms up
            found = list[list[float]]()
            starts = [time.process_time()]
            asyncio.run(unread(engine, prompts(STREAMS, 16, seed=10 + 2 * turn)))
            found.append(times[1:])  # the first step is the prompts'
            times.clear()
            starts.append(time.process_time())
            work = bodies(prompts(STREAMS, 16, seed=11 + 2 * turn), STREAM_TOKENS, stream=True)
            seen = drive(port, work, at_seconds=[0.0] * STREAMS)
            starts.append(time.process_time())
            found.append(times[1:])
            times.clear()
            if turn >= 0:
                alone += found[0]
                read += found[1]
                between += gaps(seen, range(STREAMS))
                spent = [later - earlier for earlier, later in itertools.pairwise(starts)]
                cpu = [a + b for a, b in zip(cpu, [*spent, seen.cpu_seconds], strict=True)]
    return {
        f"{STREAMS} streams, steps with nobody reading, ms": spread_ms(alone),
        f"{STREAMS} streams, steps with HTTP clients, ms": spread_ms(read),
        f"{STREAMS} streams, between tokens over HTTP, ms": spread_ms(between),
        f"{STREAMS} streams, CPU of both and of the client, s": " ".join(f"{a:.2f}" for a in cpu),
    }


async def unread(engine: AsyncEngine, work: list[list[int]]) -> None:
    """Requests whose answers nobody takes: what the engine does alone."""
    params = SamplingParams(temperature=0, max_tokens=STREAM_TOKENS, ignore_eos=True)
    requests = [GenerateRequest(prompt_token_ids=each, params=params) for each in work]
    held = [await engine.submit(request) for request in requests]
    while engine.progress() is not None:
        await asyncio.sleep(0.05)
    for stream in held:
        await stream.cancel()


def long_prompts() -> dict[str, Any]:
    """Eight running streams, undisturbed and while long prompts arrive."""
    figures = {}
    for name, n_long in (
        ("undisturbed", 0),
        (f"as prompts of {LONG_TOKENS:,} arrive", LONG_PROMPTS),
    ):
        with server() as own_process:
            work = bodies(prompts(RUNNING, 32, seed=6), RUNNING_TOKENS, stream=True)
            work += bodies(prompts(n_long, LONG_TOKENS, seed=7), 4, stream=True)
            at = [0.0] * RUNNING + [1.0 + LONG_EVERY_SECONDS * i for i in range(n_long)]
            seen = drive(own_process.port, work, at_seconds=at)
        figures[f"{RUNNING} streams {name}, between tokens, ms"] = spread_ms(
            gaps(seen, range(RUNNING))
        )
        if n_long:
            firsts = [seen.times[RUNNING + i][0] - at[RUNNING + i] for i in range(n_long)]
            figures["their time to the first token, s"] = " ".join(f"{each:.2f}" for each in firsts)
    return figures


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput": throughput,
    "streams": streams,
    "prompts": long_prompts,
}


def main() -> None:
    figures: dict[str, Any] = {}
    for name in sys.argv[1:] or PARTS:
        figures |= PARTS[name]()
    write("server_load", figures)


if __name__ == "__main__":
    main()
