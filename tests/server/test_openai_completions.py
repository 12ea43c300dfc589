"""The completions route through the vendor's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from octavo.core.errors import Overloaded
from tests.server.conftest import LIMITS, Served
from tests.server.fake_engine import MODEL


def test_whole_answer(served: Served) -> None:
    answer = served.client.completions.create(model=MODEL, prompt="Once")
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [(0, "Hello", "stop")]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    details = answer.usage.prompt_tokens_details
    assert (details.cached_tokens, details.cache_write_tokens) == (4, 1)
    (request,) = served.engine.requests
    assert (request.prompt, request.prompt_token_ids) == ("Once", None)
    assert request.params.max_tokens == 16


def test_labels_change_nothing(served: Served) -> None:
    labels = {"metadata": {"a": "b"}, "store": False, "service_tier": "auto"}
    answer = served.client.completions.create(model=MODEL, prompt="a", user="u", extra_body=labels)
    assert answer.choices[0].text == "Hello"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", [("a", None)]),
        (["a", "b"], [("a", None), ("b", None)]),
        ([1, 2], [(None, [1, 2])]),
        ([[1], [2, 3]], [(None, [1]), (None, [2, 3])]),
    ],
)
def test_four_forms_of_a_prompt(served: Served, prompt: Any, expected: Any) -> None:
    answer = served.client.completions.create(model=MODEL, prompt=prompt, n=2)
    assert [(r.prompt, r.prompt_token_ids) for r in served.engine.requests] == expected
    assert [c.index for c in answer.choices] == list(range(2 * len(expected)))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 5 * len(expected)
    assert answer.usage.completion_tokens == 4 * len(expected)


def test_stream_of_several_prompts(served: Served) -> None:
    options: Any = {"include_usage": True}
    with served.client.completions.create(
        model=MODEL, prompt=["a", "b", "c"], n=2, stream=True, stream_options=options
    ) as stream:
        events = list(stream)
    texts = dict.fromkeys(range(6), "")
    for event in events[:-1]:
        texts[event.choices[0].index] += event.choices[0].text
    assert texts == dict.fromkeys(range(6), "Hello")
    assert events[-1].usage is not None
    assert (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens) == (15, 12)


def test_logprobs(served: Served) -> None:
    answer = served.client.completions.create(model=MODEL, prompt="a", logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["H", "l"]
    assert logprobs.token_logprobs == [-1.5, -1.5]
    assert logprobs.text_offset == [0, 1]
    assert logprobs.top_logprobs == [{"H": -1.5, "!": -0.5}, {"l": -1.5, "!": -0.5}]


def test_streamed_logprobs_go_on_counting_offsets(served: Served) -> None:
    with served.client.completions.create(
        model=MODEL, prompt="a", logprobs=0, stream=True
    ) as stream:
        found = [e.choices[0].logprobs for e in stream]
    assert [item.text_offset for item in found if item] == [[0], [1]]


def test_one_refused_prompt_cancels_the_others(served: Served) -> None:
    served.engine.refusal = Overloaded("the queue is full")
    served.engine.refuse_from = 2
    with pytest.raises(openai.InternalServerError) as caught:
        served.client.completions.create(model=MODEL, prompt=["a", "b", "c"])
    assert caught.value.status_code == 503
    assert served.engine.cancelled == {0, 1}


def test_engine_names_become_wire_names(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        served.client.completions.create(model=MODEL, prompt=[1, 999])
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("prompt", [["a"] * 9, ["a"] * 6])
def test_too_many_prompts(served: Served, prompt: list[str]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        served.client.completions.create(model=MODEL, prompt=prompt, n=3)
    assert (caught.value.code, caught.value.param) == ("too_many_prompts", "prompt")
    assert served.engine.requests == []


def test_more_than_the_engine_ever_lets_in_is_the_callers_fault(served: Served) -> None:
    """A 503 would be sent again and again, and never be taken."""
    assert served.engine.info.max_live_sequences < LIMITS.choices
    with pytest.raises(openai.BadRequestError, match="12 choices") as caught:
        served.client.completions.create(model=MODEL, prompt=["a"] * 7, n=2)
    assert (caught.value.code, caught.value.param) == ("too_many_prompts", "prompt")
    assert served.engine.requests == []
    answer = served.client.completions.create(model=MODEL, prompt=["a"] * 6, n=2)
    assert len(answer.choices) == 12
