"""Many clients at once: streams cut at random points, and a thousand connections."""

from __future__ import annotations

import asyncio
import os
import random
import resource
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from benchmarks.raw_http import Exchange, texts
from benchmarks.soak import served
from octavo.engine.async_engine import AsyncEngine
from octavo.server.limits import ServerLimits
from tests.engine.tiny import assert_empty, prompt
from tests.server.fake_engine import MODEL, FakeEngine, hello
from tests.server.faults import COMPLETIONS
from tests.server.live import serving, talker

Eventually = Callable[[Callable[[], bool]], None]
CUTS = 200
KEPT = 12
CONNECTIONS = 1000


def body(n_prompt: int, seed: int, max_tokens: int) -> dict[str, Any]:
    """A third of the prompt is common to all."""
    common, own = prompt(n_prompt // 3, seed=99), prompt(n_prompt - n_prompt // 3, seed=seed)
    return {
        "model": "tiny",
        "prompt": common + own,
        "temperature": 0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
    }


async def tell(port: int, fields: dict[str, Any]) -> str:
    async with Exchange(port, COMPLETIONS, fields) as answer:
        assert answer.status == 200
        return "".join([text async for text in texts(answer)])


async def cut(port: int, source: random.Random) -> str:
    """Ask for a long answer and go away. Returns when it went: before or after the first event."""
    fields = body(source.choice([20, 60, 300]), source.randrange(1000), 150)
    n_events = source.choice([0, 0, 1, 2, 10])
    seen = 0

    async def read() -> None:
        nonlocal seen
        async with Exchange(port, COMPLETIONS, fields) as answer:
            async for _ in texts(answer):
                seen += 1
                if n_events and seen >= n_events:
                    return

    try:
        await asyncio.wait_for(read(), 20.0 if n_events else source.random())
    except TimeoutError:
        assert not n_events, "an answer did not come"
    return "streaming" if seen else "before"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AsyncEngine, int]]:
    """Eight seats, chunks of 64 tokens, and a pool that is too small for all."""
    folder = tmp_path_factory.mktemp("load")
    talker(folder)
    sizes = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "num_blocks": 120}
    with serving(folder, max_model_len=512, **sizes) as (engine, url):
        yield engine, int(url.rpartition(":")[2])


def test_streams_cut_anywhere_disturb_nobody_and_leave_nothing(
    house: tuple[AsyncEngine, int], eventually: Eventually
) -> None:
    engine, port = house
    kept = [body(40 + 13 * i, 5000 + i, 30) for i in range(KEPT)]
    source = random.Random(7)

    async def alone() -> list[str]:
        return [await tell(port, fields) for fields in kept]

    async def among() -> tuple[list[str], list[str]]:
        cuts = [asyncio.create_task(cut(port, source)) for _ in range(CUTS)]
        told = await asyncio.gather(*(tell(port, fields) for fields in kept))
        return list(told), list(await asyncio.gather(*cuts))

    expected = asyncio.run(alone())
    told, ends = asyncio.run(asyncio.wait_for(among(), 120))
    assert told == expected
    assert min(ends.count("before"), ends.count("streaming")) > CUTS // 10
    inner = engine._engine
    eventually(lambda: not inner.busy and inner.room == inner.max_live)
    assert_empty(inner)
    stats = engine.stats()
    assert stats.free_blocks + stats.cached_blocks == stats.total_blocks


def test_a_thousand_connections(eventually: Eventually) -> None:
    """All are held at once, answered, and their descriptors given back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CONNECTIONS + 200  # both ends are in this process
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    engine = FakeEngine()
    engine.script = lambda request: [3.0, *hello(request)]

    async def one(port: int) -> str:
        body = {"model": MODEL, "prompt": "a", "stream": True}
        async with Exchange(port, COMPLETIONS, body) as answer:
            assert answer.status == 200
            return "".join([text async for text in texts(answer)])

    async def story(port: int) -> list[str]:
        asking = [asyncio.create_task(one(port)) for _ in range(CONNECTIONS)]
        while len(engine.requests) < CONNECTIONS:
            await asyncio.sleep(0.02)
        return list(await asyncio.gather(*asking))

    try:
        with served(engine, ServerLimits()) as port:
            before = len(os.listdir("/proc/self/fd"))
            told = asyncio.run(asyncio.wait_for(story(port), 60))
            assert told == ["Hello"] * CONNECTIONS
            eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 5)
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
