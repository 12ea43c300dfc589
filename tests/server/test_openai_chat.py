"""The chat route through the vendor's own client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import openai
import pytest

from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.types import Chunk, GenerateRequest
from tests.server.conftest import Served
from tests.server.fake_engine import MODEL, hello, usage

HI: list[Any] = [{"role": "user", "content": "hi"}]


def test_whole_answer(served: Served) -> None:
    raw = served.client.chat.completions.with_raw_response.create(model=MODEL, messages=HI)
    answer = raw.parse()
    assert raw.headers["x-request-id"].startswith("req_")
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.system_fingerprint is not None
    assert "fake" in answer.system_fingerprint
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert choice.logprobs is None
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 2)
    assert answer.usage.total_tokens == 7
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (None, 1.0, False)),
        ({"length_penalty": 1}, (None, 1.0, False)),
        ({"use_beam_search": False}, (None, 1.0, False)),
        ({"use_beam_search": True}, (2, 1.0, False)),
        ({"use_beam_search": True, "beam_width": 8, "length_penalty": 0.5}, (8, 0.5, False)),
        ({"beam_width": 8, "early_stopping": True}, (8, 1.0, True)),
        ({"beam_width": 8, "early_stopping": "never"}, (8, 1.0, "never")),
    ],
    ids=str,
)
def test_beam_search_is_asked_for_as_elsewhere_or_by_its_width(
    served: Served, body: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    served.client.chat.completions.create(model=MODEL, messages=HI, n=2, extra_body=body)
    params = served.engine.requests[0].params
    assert (params.beam_width, params.length_penalty, params.early_stopping) == expected
    assert params.n == 2


def test_fields_reach_the_engine(served: Served) -> None:
    served.client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
        temperature=0.5,
        top_p=0.9,
        seed=-3,
        stop="END",
        max_completion_tokens=7,
        user="u",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        tools=[],
        logit_bias={"7": -100, "8": 2.5},
        presence_penalty=0.5,
        frequency_penalty=-2,
        extra_body={
            "repetition_penalty": 1.2,
            "allowed_token_ids": [4, 5],
            "bad_words": ["bad"],
            "min_tokens": 3,
            "include_stop_str_in_output": True,
            "top_k": 5,
            "min_p": 0.1,
            "stop_token_ids": [9],
            "ignore_eos": True,
            "priority": -2,
            "cache_salt": "s",
        },
    )
    (request,) = served.engine.requests
    assert request.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    params = request.params
    assert (params.temperature, params.top_p, params.seed) == (0.5, 0.9, -3)
    assert (params.stop, params.max_tokens) == (("END",), 7)
    assert (params.top_k, params.min_p, params.stop_token_ids) == (5, 0.1, (9,))
    assert params.ignore_eos
    assert (params.presence_penalty, params.frequency_penalty) == (0.5, -2)
    assert (params.repetition_penalty, params.logit_bias) == (1.2, {7: -100, 8: 2.5})
    assert (params.allowed_token_ids, params.bad_words) == ([4, 5], ("bad",))
    assert (params.min_tokens, params.include_stop_str_in_output) == (3, True)
    assert (request.priority, request.salt) == (-2, "s")


def test_defaults(served: Served) -> None:
    served.client.chat.completions.create(model=MODEL, messages=HI, extra_body={"top_k": -1})
    params = served.engine.requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.n) == (1.0, 1.0, 0, 1)
    assert params.max_tokens is None
    assert params.logprobs is None


@pytest.fixture
def recommends(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server whose model's files recommend sampling."""
    defaults = GenerationDefaults(temperature=0.6, top_k=20, min_p=0.1, max_tokens=40)
    monkeypatch.setattr(served.engine, "info", replace(served.engine.info, defaults=defaults))
    return served


def test_fields_that_are_not_set_are_the_models(recommends: Served) -> None:
    chat = recommends.client.chat.completions
    chat.create(model=MODEL, messages=HI, top_p=0.5)
    chat.create(model=MODEL, messages=HI, temperature=0, extra_body={"top_k": 0, "min_p": None})
    chat.create(model=MODEL, messages=HI, max_tokens=7, extra_body={"beam_width": 2})
    recommends.client.completions.create(model=MODEL, prompt="hi")
    recommends.client.completions.create(model=MODEL, prompt="hi", max_tokens=3)
    unset, own, search, prompt, short = (one.params for one in recommends.engine.requests)
    assert unset == SamplingParams(temperature=0.6, top_k=20, min_p=0.1, top_p=0.5, max_tokens=40)
    assert own == SamplingParams(temperature=0, top_k=0, min_p=0.1, max_tokens=40)
    assert search == SamplingParams(beam_width=2, max_tokens=7)
    assert (prompt.temperature, prompt.max_tokens, short.max_tokens) == (0.6, 40, 3)


def test_answers_of_a_search_have_their_scores(served: Served) -> None:
    def script(request: GenerateRequest) -> list[Chunk]:
        end = {"finish_reason": "stop"}
        return [
            Chunk(0, "a", (1,), cumulative_logprob=-0.5, **end),
            Chunk(1, "b", (2,), cumulative_logprob=-1.5, usage=usage(), **end),
        ]

    served.engine.script = script
    asked: dict[str, Any] = {"model": MODEL, "n": 2, "extra_body": {"beam_width": 2}}
    chat = served.client.chat.completions
    with chat.create(messages=HI, stream=True, **asked) as stream:
        events = [event.choices[0] for event in stream if event.choices[0].finish_reason]
    for choices in (
        chat.create(messages=HI, **asked).choices,
        served.client.completions.create(prompt="hi", **asked).choices,
        events,
    ):
        assert [choice.cumulative_logprob for choice in choices] == [-0.5, -1.5]
    served.engine.script = hello
    (sampled,) = chat.create(model=MODEL, messages=HI).choices
    assert "cumulative_logprob" not in sampled.model_dump()


def test_a_search_needs_room_for_its_beams(served: Served) -> None:
    create = served.client.completions.create
    with pytest.raises(openai.BadRequestError, match="4 choices or beams each"):
        create(model=MODEL, prompt=["a"] * 4, extra_body={"beam_width": 4})
    assert served.engine.requests == []


def test_own_answer_can_be_sent_back(served: Served) -> None:
    answer = served.client.chat.completions.create(model=MODEL, messages=HI)
    again = [*HI, answer.choices[0].message.model_dump(), *HI]
    served.client.chat.completions.create(model=MODEL, messages=again)
    assert served.engine.requests[1].messages[1] == {"role": "assistant", "content": "Hello"}


def test_stream(served: Served) -> None:
    with served.client.chat.completions.create(model=MODEL, messages=HI, stream=True) as stream:
        events = list(stream)
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(e.choices[0].delta.content or "" for e in events) == "Hello"
    assert [e.choices[0].finish_reason for e in events] == [None, None, "stop"]
    assert len({e.id for e in events}) == 1
    assert all(e.object == "chat.completion.chunk" for e in events)
    assert "usage" not in events[0].model_fields_set


def test_stream_with_usage(served: Served) -> None:
    options: Any = {"include_usage": True}
    with served.client.chat.completions.create(
        model=MODEL, messages=HI, stream=True, stream_options=options
    ) as stream:
        events = list(stream)
    assert all(e.usage is None and "usage" in e.model_fields_set for e in events[:-1])
    last = events[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.prompt_tokens_details is not None
    assert (last.usage.total_tokens, last.usage.prompt_tokens_details.cached_tokens) == (7, 4)


def test_stream_ends_with_done_and_skips_empty_chunks(served: Served) -> None:
    served.engine.script = lambda request: [
        Chunk(0, "", (1,)),
        Chunk(0, "é", (2,)),
        Chunk(0, "", (3,), finish_reason="length", usage=usage()),
    ]
    body = {"model": MODEL, "messages": HI, "stream": True}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.content.decode("utf-8").split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert len(lines) == 4
    assert '"content":"é"' in lines[1]
    assert '"delta":{}' in lines[2]


def test_choices(served: Served) -> None:
    answer = served.client.chat.completions.create(model=MODEL, messages=HI, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert served.engine.requests[0].params.n == 3
    with served.client.chat.completions.create(
        model=MODEL, messages=HI, n=2, stream=True
    ) as stream:
        events = list(stream)
    for index in (0, 1):
        mine = [e.choices[0] for e in events if e.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(c.delta.content or "" for c in mine) == "Hello"


def test_logprobs(served: Served) -> None:
    answer = served.client.chat.completions.create(
        model=MODEL, messages=HI, logprobs=True, top_logprobs=1
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [entry.token for entry in logprobs.content] == ["H", "l"]
    first = logprobs.content[0]
    assert (first.logprob, first.bytes) == (-1.5, [72])
    # The chosen token was only second: it is not among the one likeliest.
    assert [(t.token, t.logprob) for t in first.top_logprobs] == [("!", -0.5)]
    assert served.engine.requests[0].params.logprobs == 1


def test_logprobs_without_alternatives_and_streamed(served: Served) -> None:
    with served.client.chat.completions.create(
        model=MODEL, messages=HI, logprobs=True, stream=True
    ) as stream:
        found = [e.choices[0].logprobs for e in stream]
    contents = [entry for item in found if item for entry in item.content or []]
    assert [entry.token for entry in contents] == ["H", "l"]
    assert all(entry.top_logprobs == [] for entry in contents)
    assert served.engine.requests[0].params.logprobs == 0


def test_async_client(served: Served) -> None:
    async def both() -> tuple[str | None, str]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
            whole = await client.chat.completions.create(model=MODEL, messages=HI)
            async with await client.chat.completions.create(
                model=MODEL, messages=HI, stream=True
            ) as stream:
                text = "".join([e.choices[0].delta.content or "" async for e in stream])
        return whole.choices[0].message.content, text

    assert asyncio.run(both()) == ("Hello", "Hello")


def test_large_body_is_read_in_a_thread(served: Served) -> None:
    text = "word " * 15_000
    served.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}])
    messages = served.engine.requests[0].messages
    assert messages is not None
    assert messages[0]["content"] == text
