"""Body and answer fields that clients know from vLLM, beside OpenAI's own."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine.chat_options import ChatOptions
from octavo.engine.types import Chunk, GenerateRequest
from tests.server.conftest import Served
from tests.server.fake_engine import MODEL, usage

HI: list[Any] = [{"role": "user", "content": "hi"}]


def test_fields_of_a_chat_reach_the_engine(served: Served) -> None:
    served.client.chat.completions.create(
        model=MODEL,
        messages=HI,
        extra_body={
            "truncate_prompt_tokens": -1,
            "skip_special_tokens": False,
            "continue_final_message": True,
            "add_generation_prompt": False,
            "chat_template_kwargs": {"enable_thinking": False, "date_string": "26 Jul 2024"},
        },
    )
    (request,) = served.engine.requests
    assert request.chat == ChatOptions(
        add_generation_prompt=False,
        continue_final_message=True,
        template_kwargs={"enable_thinking": False, "date_string": "26 Jul 2024"},
    )
    assert request.truncate_prompt_tokens == -1
    assert request.clamp_max_tokens
    assert request.params is not None
    assert not request.params.skip_special_tokens


def test_a_chat_opens_an_answer_unless_it_goes_on_with_one(served: Served) -> None:
    for fields in ({}, {"continue_final_message": True}, {"add_generation_prompt": False}):
        served.client.chat.completions.create(model=MODEL, messages=HI, extra_body=fields)
    opens = [request.chat.opens_answer for request in served.engine.requests]
    assert opens == [True, False, False]


def test_fields_of_a_completion_reach_the_engine(served: Served) -> None:
    create = served.client.completions.create
    create(model=MODEL, prompt=["a", "b"], n=2, best_of=2)
    create(
        model=MODEL,
        prompt="a",
        extra_body={"add_special_tokens": False, "truncate_prompt_tokens": 7},
    )
    *plain, cut = served.engine.requests
    assert all(one.add_special_tokens and one.truncate_prompt_tokens is None for one in plain)
    assert (cut.add_special_tokens, cut.truncate_prompt_tokens) == (False, 7)


@pytest.fixture
def cut_short(served: Served) -> Served:
    """An engine whose answer is ended by a stop string, its first token showing no text yet."""

    def script(request: GenerateRequest) -> list[Chunk]:
        last = usage(completion=3)
        return [
            Chunk(0, "", (72,)),
            Chunk(0, "He", (73,)),
            Chunk(0, "", (74,), finish_reason="stop", stop_reason="END", usage=last),
        ]

    served.engine.script = script
    return served


def test_token_ids_of_a_chat(cut_short: Served) -> None:
    chat, asked = cut_short.client.chat.completions, {"return_token_ids": True}
    answer = chat.create(model=MODEL, messages=HI, extra_body=asked).model_dump()
    assert answer["prompt_token_ids"] == [1, 2, 3]
    assert answer["choices"][0]["token_ids"] == [72, 73, 74]
    assert answer["choices"][0]["stop_reason"] == "END"
    with chat.create(model=MODEL, messages=HI, stream=True, extra_body=asked) as stream:
        first, *events = [event.model_dump() for event in stream]
    assert first["prompt_token_ids"] == [1, 2, 3]
    assert not any("prompt_token_ids" in event for event in events)
    assert [event["choices"][0]["token_ids"] for event in events] == [[72], [73], [74]]
    assert events[-1]["choices"][0]["stop_reason"] == "END"


def test_token_ids_of_a_completion(served: Served) -> None:
    create, asked = served.client.completions.create, {"return_token_ids": True}
    answer = create(model=MODEL, prompt=["a", "b"], n=2, extra_body=asked).model_dump()
    assert [choice["prompt_token_ids"] for choice in answer["choices"]] == [[1, 2, 3]] * 4
    assert [choice["token_ids"] for choice in answer["choices"]] == [[72, 108]] * 4
    with create(model=MODEL, prompt="a", stream=True, extra_body=asked) as stream:
        choices = [event.choices[0].model_dump() for event in stream]
    assert [choice.get("prompt_token_ids") for choice in choices] == [[1, 2, 3], None]
    assert [choice["token_ids"] for choice in choices] == [[72], [108]]


def test_no_token_ids_unless_they_are_asked_for(cut_short: Served) -> None:
    answer = cut_short.client.chat.completions.create(model=MODEL, messages=HI).model_dump()
    assert "prompt_token_ids" not in answer
    assert "token_ids" not in answer["choices"][0]
    assert answer["choices"][0]["stop_reason"] == "END"
    with cut_short.client.completions.create(model=MODEL, prompt="a", stream=True) as stream:
        texts = [event.choices[0].text for event in stream]
    assert texts == ["He", ""]  # the token without text has no event


def test_usage_in_every_event(served: Served) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    with served.client.chat.completions.create(
        model=MODEL, messages=HI, n=2, stream=True, stream_options=options
    ) as stream:
        events = list(stream)
    counts = [
        (event.choices[0].index, event.usage.completion_tokens)
        for event in events[:-1]
        if event.usage is not None
    ]
    assert counts == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert events[0].usage is not None
    assert (events[0].usage.prompt_tokens, events[0].usage.total_tokens) == (3, 3)
    assert events[-1].choices == []
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 4


def test_an_echo_of_a_prompt_that_was_cut_is_what_is_left(served: Served) -> None:
    answer = served.client.completions.create(
        model=MODEL, prompt="long", echo=True, extra_body={"truncate_prompt_tokens": 3}
    )
    assert answer.choices[0].text == "\x01\x02\x03Hello"
