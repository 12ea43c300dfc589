"""How much of a prompt is kept, how much may follow it, and its tokens on their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.core.errors import EngineClosed, RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.engine import Engine
from octavo.engine.types import GenerateRequest
from tests.checkpoints import tiny_llama
from tests.engine.tiny import DEFAULTS, GREEDY, built, prompt

CONTEXT = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("room")
    tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """A context of 64 tokens and a pool of 48."""
    options = {"max_model_len": CONTEXT, "num_blocks": 3, "skip_tokenizer_init": True}
    return built(folder, **options).engine


def kept(engine: Engine, n_prompt: int, limit: int | None, **params: Any) -> list[int]:
    ids = prompt(n_prompt)
    request = GenerateRequest(
        prompt_token_ids=ids, truncate_prompt_tokens=limit, params=SamplingParams(**params)
    )
    found = engine.prepare(request).tokens
    assert found == ids[n_prompt - len(found) :]
    return found


@pytest.mark.parametrize(
    ("n_prompt", "limit", "max_tokens", "n_kept"),
    [
        (10, None, 5, 10),
        (10, 4, 5, 4),
        (10, 10, 5, 10),
        (10, 63, 5, 10),
        (1000, 1, 5, 1),
        (1000, 48, 5, 48),
        (1000, -1, 20, CONTEXT - 20),
        (1000, -1, 63, 1),
        (10, -1, 20, 10),
    ],
)
def test_the_last_tokens_are_kept(
    engine: Engine, n_prompt: int, limit: int | None, max_tokens: int, n_kept: int
) -> None:
    assert len(kept(engine, n_prompt, limit, max_tokens=max_tokens)) == n_kept


@pytest.mark.parametrize("limit", [0, -2, CONTEXT, 10**9, True, 1.5, "5"])
def test_bounds_of_truncation(engine: Engine, limit: Any) -> None:
    with pytest.raises(RequestError) as caught:
        kept(engine, 10, limit)
    assert caught.value.param == "truncate_prompt_tokens"


def test_no_room_to_leave(engine: Engine) -> None:
    with pytest.raises(RequestError, match="leave none") as caught:
        kept(engine, 10, -1, max_tokens=CONTEXT)
    assert caught.value.param == "max_tokens"


def test_only_what_is_kept_must_be_of_the_vocabulary(engine: Engine) -> None:
    request = GenerateRequest(prompt_token_ids=[10**9, 5, 6], params=GREEDY)
    assert engine.prepare(replace(request, truncate_prompt_tokens=2)).tokens == [5, 6]
    with pytest.raises(RequestError):
        engine.prepare(request)


def test_rendering_is_said_by_its_own_type(engine: Engine) -> None:
    options: Any = {"continue_final_message": True}
    with pytest.raises(RequestError) as caught:
        engine.prepare(GenerateRequest(prompt_token_ids=[5], params=GREEDY, chat=options))
    assert caught.value.param == "chat"


@pytest.mark.parametrize(("n_prompt", "room"), [(10, 48 + 1 - 10), (48, 1)])
def test_max_tokens_beyond_the_room(engine: Engine, n_prompt: int, room: int) -> None:
    request = GenerateRequest(
        prompt_token_ids=prompt(n_prompt), params=SamplingParams(max_tokens=room)
    )
    longer = replace(request, params=SamplingParams(max_tokens=room + 1))
    strict, strict_longer = (replace(one, clamp_max_tokens=False) for one in (request, longer))
    for fits in (request, longer, strict):
        engine.prepare(fits)
    engine.prepare(replace(request, clamp_max_tokens=False, params=SamplingParams()))
    with pytest.raises(RequestError, match=f"more than the {room} that fit") as caught:
        engine.prepare(strict_longer)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")


@pytest.fixture
def running(folder: Path) -> Iterator[AsyncEngine]:
    engine = AsyncEngine.load(str(folder), **{**DEFAULTS, "skip_tokenizer_init": True})
    yield engine
    asyncio.run(engine.close())


def test_clearing_says_what_was_let_go(running: AsyncEngine) -> None:
    async def story() -> None:
        request = GenerateRequest(prompt_token_ids=prompt(40), params=GREEDY)
        async for _ in await running.submit(request):
            pass
        cleared = await running.clear_cache()
        assert (cleared.freed_blocks, cleared.held_blocks) == (3, 0)
        again = [chunk async for chunk in await running.submit(request)]
        assert again[-1].usage is not None
        assert again[-1].usage.cached_tokens == 0
        long = replace(request, params=replace(GREEDY, max_tokens=200))
        stream = await running.submit(long)
        await anext(aiter(stream))
        cleared = await running.clear_cache()
        assert cleared.held_blocks >= 3
        await stream.cancel()

    asyncio.run(story())


def test_clearing_an_engine_that_dies_raises(
    running: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async def story() -> None:
        monkeypatch.setattr(running._engine, "step", broken)
        with pytest.raises(EngineClosed):
            await running.clear_cache()
        with pytest.raises(EngineClosed):
            await running.tokenize(GenerateRequest(prompt_token_ids=[5]))

    asyncio.run(story())


def test_tokenizing_takes_a_place_and_gives_it_back(running: AsyncEngine) -> None:
    async def story() -> None:
        request = GenerateRequest(prompt_token_ids=[5, 6])
        assert await running.tokenize(request) == [5, 6]
        with pytest.raises(RequestError):
            await running.tokenize(GenerateRequest(prompt="text"))
        with pytest.raises(RequestError):
            await running.detokenize([5])

    asyncio.run(story())
    assert running._engine.room == running._engine.max_live
