"""Bad, oversized and abandoned requests over HTTP with a real engine behind: it lives and leaks
nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.engine.async_engine import AsyncEngine
from tests.engine.tiny import assert_empty, prompt
from tests.server.faults import CHAT, COMPLETIONS
from tests.server.live import MODEL, VOCAB, serving, talker

Eventually = Callable[[Callable[[], bool]], None]
CONTEXT = 128
HUGE = 10**9


@dataclass
class House:
    engine: AsyncEngine
    http: httpx.Client

    def post(self, **fields: Any) -> httpx.Response:
        return self.http.post(COMPLETIONS, json=body(**fields))

    def idle(self) -> bool:
        inner = self.engine._engine
        return not inner.busy and inner.room == inner.max_live


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": [5, 6, 7], "temperature": 0, "max_tokens": 3, **fields}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Two seats, chunks of 16 tokens, a context of 128 and a pool of 96 tokens."""
    folder: Path = tmp_path_factory.mktemp("live")
    talker(folder)
    sizes = {"max_num_batched_tokens": 16, "max_num_seqs": 2, "num_blocks": 6}
    with (
        serving(folder, max_model_len=CONTEXT, **sizes) as (engine, url),
        httpx.Client(base_url=url, timeout=20) as http,
    ):
        yield House(engine, http)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [5, VOCAB]}, "prompt"),
        ({"prompt": [5, 2**31 - 1]}, "prompt"),
        ({"prompt": [5, -1]}, "prompt"),
        ({"prompt": prompt(CONTEXT)}, "prompt"),
        ({"prompt": prompt(97)}, "prompt"),  # within the context, and never within the pool
        ({"n": 10**6}, "n"),
        ({"logit_bias": {"999999": 5}}, "logit_bias"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"stop_token_ids": [HUGE]}, "stop_token_ids"),
        ({"stop_token_ids": [VOCAB]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.[0]"),
        ({"allowed_token_ids": [5, HUGE]}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids.[0]"),
        ({"bad_words": [[VOCAB]]}, "bad_words.[0]"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_can_never_run_is_refused_at_once_and_the_next_one_runs(
    house: House, fields: dict[str, Any], param: str
) -> None:
    refused = house.post(**fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    answer = house.post()
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert house.http.get("/health").status_code == 200
    assert_empty(house.engine._engine)


TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLING = {"role": "assistant", "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL], "messages": [USER, CALLING]}, "messages.[1].tool_calls"),
        (
            {"messages": [USER, CALLING, {"role": "tool", "tool_call_id": "b", "content": "x"}]},
            "messages.[2].tool_call_id",
        ),
    ],
    ids=str,
)
def test_tools_and_calls_that_do_not_fit_together_are_refused(
    house: House, fields: dict[str, Any], param: str
) -> None:
    refused = house.http.post(CHAT, json={"model": MODEL, "messages": [USER], **fields})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert_empty(house.engine._engine)


def test_max_tokens_beyond_the_room_is_clamped_not_refused(house: House) -> None:
    for n_prompt, n_answer in ((20, 96 + 1 - 20), (90, 7)):
        answer = house.post(prompt=prompt(n_prompt), max_tokens=4096, ignore_eos=True).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == n_answer


def test_more_choices_than_seats_are_all_answered(house: House) -> None:
    answer = house.post(n=9).json()
    assert len({choice["text"] for choice in answer["choices"]}) == 1
    assert [choice["index"] for choice in answer["choices"]] == list(range(9))


async def leave_early(http: httpx.AsyncClient, source: random.Random) -> None:
    """Ask for a long answer and go: while it queues, is prefilled or is being told."""
    fields = body(
        prompt=prompt(source.randrange(1, 60), seed=source.randrange(4)),
        max_tokens=90,
        ignore_eos=True,
        n=source.choice([1, 1, 3]),
        stream=source.random() < 0.7,
    )
    lines = source.choice([0, 0, 1, 5, 20])
    await asyncio.sleep(source.random() * 0.3)

    async def ask() -> None:
        async with http.stream("POST", COMPLETIONS, json=fields) as answer:
            seen = 0
            async for _ in answer.aiter_lines():
                seen += 1
                if seen > lines:
                    return

    try:
        await asyncio.wait_for(ask(), source.choice([0.01, 0.05, 0.2, 10.0]) if lines else 0.05)
    except TimeoutError:
        return


def test_clients_that_leave_at_random_points_leave_nothing_behind(
    house: House, eventually: Eventually
) -> None:
    before = house.post(prompt=prompt(40), max_tokens=20).json()["choices"]
    generated = house.engine.stats().generated_tokens
    source = random.Random(1)

    async def story() -> None:
        async with httpx.AsyncClient(
            base_url=house.http.base_url, limits=httpx.Limits(max_connections=None), timeout=20
        ) as http:
            await asyncio.gather(*(leave_early(http, source) for _ in range(60)))

    asyncio.run(story())
    eventually(house.idle)
    assert_empty(house.engine._engine)
    generated = house.engine.stats().generated_tokens - generated
    assert 0 < generated < 60 * 30  # of about 60 * 100 that were asked for
    assert house.post(prompt=prompt(40), max_tokens=20).json()["choices"] == before
    assert house.http.get("/health").status_code == 200
