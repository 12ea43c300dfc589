"""Mixed traffic over HTTP for a while: whole, streamed, cut off, wrong and late requests.

`python -m benchmarks.soak [seconds]`, 600 by default. What counts is what is left afterwards: the
process's memory, descriptors and threads, and the blocks of the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from benchmarks.raw_http import Exchange, texts
from benchmarks.record import write
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.stats import EngineStats
from octavo.server.access.guard import LOOPBACK
from octavo.server.app import create_app
from octavo.server.contract import HeldEngine
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, make_server

PATH = "/v1/completions"
CLIENTS = 12
WARM_SHARE = 0.3  # of the time, until memory is taken as the start of what must stay level
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SETTLE_SECONDS = 20.0
ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Level:
    """What a process holds, at one moment."""

    rss_bytes: int
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Level:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        n_threads = len(os.listdir("/proc/self/task"))
        return cls(pages * PAGE_BYTES, len(os.listdir("/proc/self/fd")), n_threads)


@dataclass(slots=True)
class Soaked:
    """`before` is at rest, `warm` after a part of the traffic, `after` at rest again."""

    before: Level
    warm: Level
    after: Level
    stats: EngineStats
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # answers that should have been others


@contextlib.contextmanager
def served(engine: HeldEngine, limits: ServerLimits) -> Iterator[int]:
    """The port at which `engine` is served, by a thread of this process. Closes the engine."""
    listener = bound_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server: uvicorn.Server = make_server(create_app(engine, limits=limits, hosts=LOOPBACK), limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        thread.join(SETTLE_SECONDS)


class Traffic:
    """Requests of one kind after another, each drawn at random. `longest` prompt in tokens."""

    def __init__(self, port: int, model: str, *, longest: int, seed: int) -> None:
        self._port = port
        self._model = model
        self._longest = longest
        self._random = random.Random(seed)
        self._reference: dict[int, str] = {}
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []

    def _body(self, **fields: Any) -> dict[str, Any]:
        source = random.Random(self._random.randrange(50))  # some prompts come again
        n_tokens = source.randrange(1, self._longest)
        prompt = [source.randrange(3, 250) for _ in range(n_tokens)]
        return {"model": self._model, "prompt": prompt, "max_tokens": 20, **fields}

    async def one(self) -> None:
        """One request, counted by how it ended."""
        kind = self._random.choice([self.whole, self.streamed, self.cut, self.bad, self.late])
        async with asyncio.timeout(ANSWER_SECONDS):
            self.ends[await kind()] += 1

    async def whole(self) -> str:
        n = self._random.choice([1, 1, 2])
        async with Exchange(self._port, PATH, self._body(n=n)) as answer:
            self._check(answer.status == 200, f"a good request got {answer.status}")
            await answer.body()
        return "whole"

    async def streamed(self) -> str:
        """One of a few prompts: its text must be the same every time."""
        number = self._random.randrange(4)
        prompt = [5 + number] * (self._longest // (number + 2))
        body = self._body(prompt=prompt, temperature=0, stream=True, ignore_eos=True)
        async with Exchange(self._port, PATH, body) as answer:
            self._check(answer.status == 200, f"a good stream got {answer.status}")
            told = "".join([text async for text in texts(answer)])
        self._check(self._reference.setdefault(number, told) == told, "a text has changed")
        return "streamed"

    async def cut(self) -> str:
        """Left while it waits or after some events."""
        body = self._body(stream=True, max_tokens=400)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(self._random.choice([0.001, 0.02, 0.2])),
                Exchange(self._port, PATH, body) as answer,
            ):
                async for _ in answer.events():
                    pass
        return "cut"

    async def bad(self) -> str:
        wrong: dict[str, Any] = self._random.choice(
            [{"prompt": []}, {"n": 10**9}, {"model": "x"}, {"prompt": [10**9]}, {"nothing": 1}]
        )
        async with Exchange(self._port, PATH, self._body(**wrong)) as answer:
            self._check(answer.status in (400, 404), f"a bad request got {answer.status}")
            await answer.body()
        return "bad"

    async def late(self) -> str:
        headers = {"x-request-timeout": "0.01"}
        body = self._body(max_tokens=400, ignore_eos=True)
        async with Exchange(self._port, PATH, body, headers=headers) as answer:
            self._check(answer.status in (200, 504), f"a late request got {answer.status}")
            await answer.body()
        return "late"

    def _check(self, right: bool, what: str) -> None:
        if not right and len(self.wrong) < 100:
            self.wrong.append(what)


def soak(engine: AsyncEngine, *, seconds: float, longest: int, seed: int = 0) -> Soaked:
    """Traffic for `seconds` from clients in this process, then rest. Closes the engine."""
    with served(engine, ServerLimits(queue_seconds=ANSWER_SECONDS)) as port:
        traffic = Traffic(port, engine.info.model, longest=longest, seed=seed)
        asyncio.run(traffic.one())  # what is loaded at the first request is no leak
        at_rest(engine)
        before = Level.now()
        warm = asyncio.run(busy(traffic, seconds))
        at_rest(engine)
        after = Level.now()
        stats = engine.stats()
    return Soaked(before, warm, after, stats, traffic.ends, traffic.wrong)


async def busy(traffic: Traffic, seconds: float) -> Level:
    """Clients that ask one request after another; what the process holds after a part of it."""
    end = time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < end:
            await traffic.one()

    clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    await asyncio.sleep(seconds * WARM_SHARE)
    warm = Level.now()
    await asyncio.gather(*clients)
    return warm


def at_rest(engine: AsyncEngine) -> None:
    """Wait until nothing runs and connections have been closed."""
    end = time.monotonic() + SETTLE_SECONDS
    while engine.progress() is not None and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    engine = AsyncEngine.load("smollm2", max_model_len=1024, num_blocks=400, max_num_seqs=8)
    found = soak(engine, seconds=seconds, longest=400)
    mib = 1 << 20
    figures = {
        "seconds": seconds,
        **{f"requests, {kind}": count for kind, count in sorted(found.ends.items())},
        "answers that were wrong": len(found.wrong),
        "RSS before, warm, after, MiB": " ".join(
            f"{each.rss_bytes / mib:.1f}" for each in (found.before, found.warm, found.after)
        ),
        "descriptors before, after": f"{found.before.descriptors} {found.after.descriptors}",
        "threads before, after": f"{found.before.threads} {found.after.threads}",
        "blocks held after": found.stats.held_blocks,
        "evictions, preemptions": f"{found.stats.evictions} {found.stats.preemptions}",
    }
    write("soak", figures)


if __name__ == "__main__":
    main()
