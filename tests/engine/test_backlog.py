"""What waits for a slow reader is joined, and nothing is lost or out of order."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from octavo.engine.backlog import Backlog
from octavo.engine.types import Chunk, TokenLogprob, Usage

USAGE = Usage(1, 2, 0)


def spoken(choice: int, token: int, *, last: bool = False, usage: Usage | None = None) -> Chunk:
    return Chunk(
        choice,
        f"<{token}>",
        (token,),
        logprobs=({token: TokenLogprob(-1.0, 1)},),
        finish_reason="stop" if last else None,
        stop_reason=token if last else None,
        usage=usage,
    )


async def taken(backlog: Backlog) -> list[Chunk]:
    chunks = []
    while (chunk := await backlog.get()) is not None:
        chunks.append(chunk)
    return chunks


def test_a_reader_that_keeps_up_gets_every_chunk_as_it_came() -> None:
    async def story() -> None:
        backlog = Backlog()
        for token in range(5):
            chunk = spoken(0, token)
            backlog.put(chunk)
            assert await backlog.get() == chunk

    asyncio.run(story())


def test_what_waits_is_joined_by_choice_and_keeps_its_end() -> None:
    async def story() -> None:
        backlog = Backlog()
        for token in range(1000):
            backlog.put(spoken(token % 2, token))
            assert len(backlog) <= 2
        backlog.put(spoken(1, 1001, last=True))
        backlog.put(spoken(0, 1000, last=True, usage=USAGE))
        second, first = await taken(backlog)
        for chunk, tokens in ((first, range(0, 1001, 2)), (second, range(1, 1002, 2))):
            assert chunk.token_ids == tuple(tokens)
            assert chunk.text == "".join(f"<{token}>" for token in tokens)
            assert chunk.logprobs == tuple({t: TokenLogprob(-1.0, 1)} for t in tokens)
            assert (chunk.finish_reason, chunk.stop_reason) == ("stop", tokens[-1])
        assert (second.usage, first.usage) == (None, USAGE)
        assert await backlog.get() is None
        assert await backlog.get() is None

    asyncio.run(story())


def test_no_logprobs_stay_none() -> None:
    async def story() -> None:
        backlog = Backlog()
        backlog.put(Chunk(0, "a", (1,)))
        backlog.put(Chunk(0, "b", (2,), finish_reason="stop", usage=USAGE))
        assert await taken(backlog) == [Chunk(0, "ab", (1, 2), finish_reason="stop", usage=USAGE)]

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(5))
def test_reads_and_writes_in_any_order_lose_nothing(seed: int) -> None:
    source = random.Random(seed)

    async def story() -> None:
        backlog = Backlog()
        reader = asyncio.create_task(taken(backlog))
        sent: dict[int, list[int]] = {choice: [] for choice in range(3)}
        for token in range(200):
            choice = source.randrange(3)
            sent[choice].append(token)
            backlog.put(spoken(choice, token))
            if source.random() < 0.3:
                await asyncio.sleep(0)
        for choice in range(3):
            backlog.put(spoken(choice, -1, last=True, usage=USAGE if choice == 2 else None))
        chunks = await asyncio.wait_for(reader, 10)
        for choice, tokens in sent.items():
            own = [chunk for chunk in chunks if chunk.choice == choice]
            assert [t for chunk in own for t in chunk.token_ids] == [*tokens, -1]
            assert [chunk.finish_reason for chunk in own][-1] == "stop"
        assert [chunk.usage for chunk in chunks if chunk.usage is not None] == [USAGE]
        assert chunks[-1].usage == USAGE

    asyncio.run(story())


def test_what_was_told_of_the_prompt_outlives_later_chunks() -> None:
    async def story() -> None:
        backlog = Backlog()
        told = (None, {5: TokenLogprob(-1.0, 1)})
        backlog.put(replace(spoken(0, 7), prompt_logprobs=told))
        backlog.put(spoken(0, 8))
        backlog.put(spoken(0, 9, last=True, usage=USAGE))
        (chunk,) = await asyncio.wait_for(taken(backlog), 10)
        assert (chunk.token_ids, chunk.prompt_logprobs) == ((7, 8, 9), told)

    asyncio.run(story())


def test_several_readers_all_find_the_end() -> None:
    async def story() -> None:
        backlog = Backlog()
        readers = [asyncio.create_task(taken(backlog)) for _ in range(3)]
        await asyncio.sleep(0)
        backlog.put(spoken(0, 7, last=True, usage=USAGE))
        found = await asyncio.wait_for(asyncio.gather(*readers), 10)
        assert sorted(map(len, found)) == [0, 0, 1]

    asyncio.run(story())
