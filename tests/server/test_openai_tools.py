"""Tools on the chat route through the vendor's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from octavo.engine.tools import Tool
from octavo.engine.types import Chunk, GenerateRequest, TokenLogprob
from tests.server.conftest import Served
from tests.server.fake_engine import MODEL, Step, usage
from tests.server.faults import CHAT, GOOD_CHAT, changed, check, post

USER: dict[str, Any] = {"role": "user", "content": "weather?"}
HI: list[Any] = [USER]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "tells it", "parameters": SCHEMA},
}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}
ARGUMENTS = '{"city": "Köln"}'
ANSWER = (
    'I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>\n'
    '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
)
CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": ARGUMENTS},
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}


def says(*texts: str, cut: int = 5, finish: str = "stop") -> Any:
    """A script: choice i says texts[i], `cut` characters a chunk."""

    def script(request: GenerateRequest) -> Sequence[Step]:
        del request
        steps: list[Step] = []
        for choice, text in enumerate(texts):
            pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
            steps += [Chunk(choice, piece, (65,)) for piece in pieces]
            last = usage() if choice == len(texts) - 1 else None
            steps.append(Chunk(choice, "", (66,), finish_reason=finish, usage=last))
        return steps

    return script


def test_whole_answer(served: Served) -> None:
    served.engine.script = says(ANSWER)
    answer = served.client.chat.completions.create(
        model=MODEL, messages=HI, tools=[WEATHER, CLOCK], parallel_tool_calls=True
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    calls: Any = choice.message.tool_calls
    assert [(c.type, c.function.name, c.function.arguments) for c in calls] == [
        ("function", "weather", ARGUMENTS),
        ("function", "clock", "{}"),
    ]
    assert all(c.id.startswith("call_") for c in calls)
    assert calls[0].id != calls[1].id
    (request,) = served.engine.requests
    assert request.tools == [
        Tool("weather", "tells it", SCHEMA),
        Tool("clock", "", {"type": "object", "properties": {}}),
    ]
    assert request.tool_choice == "auto"


def test_only_calls_leave_the_content_null(served: Served) -> None:
    served.engine.script = says(ANSWER.removeprefix("I look."))
    message = (
        served.client.chat.completions.create(model=MODEL, messages=HI, tools=[WEATHER, CLOCK])
        .choices[0]
        .message
    )
    assert message.content is None
    assert len(message.tool_calls or ()) == 2


def test_an_answer_without_calls_is_as_ever(served: Served) -> None:
    served.engine.script = says("sunny <b>\n")
    answer = served.client.chat.completions.create(model=MODEL, messages=HI, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == "sunny <b>\n"
    assert "tool_calls" not in answer.choices[0].message.model_fields_set


def test_no_tools_no_calls(served: Served) -> None:
    served.engine.script = says(ANSWER)
    for tools, choice in ((openai.omit, openai.omit), ([WEATHER, CLOCK], "none")):
        answer = served.client.chat.completions.create(
            model=MODEL,
            messages=HI,
            tools=tools,  # type: ignore[arg-type]
            tool_choice=choice,  # type: ignore[arg-type]
        )
        assert answer.choices[0].message.content == ANSWER
        assert answer.choices[0].finish_reason == "stop"
    assert [request.tool_choice for request in served.engine.requests] == ["auto", "none"]


def test_a_malformed_or_cut_call_is_text(served: Served) -> None:
    for text in (ANSWER.replace("clock", "rm"), ANSWER[:-20]):
        served.engine.script = says(text)
        answer = served.client.chat.completions.create(
            model=MODEL, messages=HI, tools=[WEATHER, CLOCK]
        )
        message = answer.choices[0].message
        assert len(message.tool_calls or ()) == 1
        assert (message.content or "").startswith("I look.<tool_call>{")
        assert answer.choices[0].finish_reason == "tool_calls"


def test_an_answer_that_ends_at_its_length_says_so(served: Served) -> None:
    served.engine.script = says(ANSWER, finish="length")
    create = served.client.chat.completions.create
    answer = create(model=MODEL, messages=HI, tools=[WEATHER, CLOCK])
    assert answer.choices[0].finish_reason == "length"
    assert len(answer.choices[0].message.tool_calls or ()) == 2


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_stream(served: Served, cut: int) -> None:
    served.engine.script = says(ANSWER, cut=cut)
    with served.client.chat.completions.create(
        model=MODEL, messages=HI, tools=[WEATHER, CLOCK], stream=True
    ) as stream:
        choices = [event.choices[0] for event in stream]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == "I look."
    calls = [call for choice in choices for call in choice.delta.tool_calls or ()]
    assert [(c.index, c.type) for c in calls] == [(0, "function"), (1, "function")]
    assert [(c.function.name, c.function.arguments) for c in calls if c.function] == [
        ("weather", ARGUMENTS),
        ("clock", "{}"),
    ]
    assert all((c.id or "").startswith("call_") for c in calls)
    assert [choice.finish_reason for choice in choices[-2:]] == [None, "tool_calls"]
    # Nothing is said in an event that says nothing.
    said = [c for c in choices[1:-1] if c.delta.content or c.delta.tool_calls]
    assert len(said) == len(choices) - 2


def test_stream_of_the_clients_own_accumulator_and_two_choices(served: Served) -> None:
    served.engine.script = says(ANSWER, ANSWER.replace("Köln", "Bonn"))
    with served.client.chat.completions.stream(
        model=MODEL, messages=HI, tools=[WEATHER, CLOCK], n=2
    ) as stream:
        choices = stream.get_final_completion().choices
    for choice, city in zip(choices, ("Köln", "Bonn"), strict=True):
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
        called: Any = choice.message.tool_calls
        assert [c.function.name for c in called] == ["weather", "clock"]
        assert json.loads(called[0].function.arguments) == {"city": city}


def test_async_client(served: Served) -> None:
    served.engine.script = says(ANSWER)

    async def both() -> tuple[Any, list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
            whole = await client.chat.completions.create(
                model=MODEL, messages=HI, tools=[WEATHER, CLOCK]
            )
            async with await client.chat.completions.create(
                model=MODEL, messages=HI, tools=[WEATHER, CLOCK], stream=True
            ) as stream:
                deltas = [event.choices[0].delta async for event in stream]
        return whole.choices[0].message.tool_calls, deltas

    whole, deltas = asyncio.run(both())
    told = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [c.function.name for c in whole] == [c.function.name for c in told]
    assert [c.function.arguments for c in whole] == [c.function.arguments for c in told]


def test_the_answer_and_its_results_can_be_sent_back(served: Served) -> None:
    served.engine.script = says(ANSWER)
    create = served.client.chat.completions.create
    message: Any = create(model=MODEL, messages=HI, tools=[WEATHER, CLOCK]).choices[0].message
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "x"}]}
        for call in message.tool_calls
    ]
    create(model=MODEL, messages=[*HI, message, *results], tools=[WEATHER, CLOCK])
    told: Any = served.engine.requests[1].messages
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "tool"]
    assert told[1]["tool_calls"][0] == {
        "id": message.tool_calls[0].id,
        "type": "function",
        "function": {"name": "weather", "arguments": ARGUMENTS},
    }
    assert told[2]["tool_call_id"] == message.tool_calls[0].id


def test_log_probabilities_come_with_the_tokens_of_a_call(served: Served) -> None:
    half = {65: TokenLogprob(-0.5, 1)}
    served.engine.script = lambda request: [
        Chunk(0, ANSWER[:9], (65,), logprobs=(half,)),
        Chunk(0, ANSWER[9:], (65, 65), logprobs=(half, half)),
        Chunk(0, "", (), finish_reason="stop", usage=usage()),
    ]
    asked: Any = {"model": MODEL, "messages": HI, "tools": [WEATHER, CLOCK], "logprobs": True}
    answer = served.client.chat.completions.create(**asked)
    with served.client.chat.completions.create(**asked, stream=True) as stream:
        told = [event.choices[0].logprobs for event in stream]
    for found in ([answer.choices[0].logprobs], told):
        assert sum(len(each.content or ()) for each in found if each) == 3


def made(**changes: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{**CALL, **changes}]}


def tool(**changes: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {**WEATHER["function"], **changes}}]


NAMED = {"type": "function", "function": {"name": "weather"}}
ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": 5}, "invalid_type", "tools"),
    ({"tools": [WEATHER] * 129}, "array_above_max_length", "tools"),
    ({"tools": [5]}, "invalid_type", "tools.[0]"),
    ({"tools": [{"type": "custom", "function": {}}]}, "invalid_value", "tools.[0].type"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools.[0].function"),
    ({"tools": tool(name="a b")}, "invalid_value", "tools.[0].function.name"),
    ({"tools": tool(name="a" * 129)}, "invalid_value", "tools.[0].function.name"),
    ({"tools": tool(description=5)}, "invalid_type", "tools.[0].function.description"),
    ({"tools": tool(description="\ud800")}, "invalid_encoding", "tools.[0].function.description"),
    ({"tools": tool(parameters=[])}, "invalid_type", "tools.[0].function.parameters"),
    (
        {"tools": tool(parameters={"type": "string"})},
        "invalid_value",
        "tools.[0].function.parameters",
    ),
    ({"tools": tool(strict=True)}, "unsupported_parameter", "tools.[0].function.strict"),
    ({"tools": tool(more=1)}, "unknown_parameter", "tools.[0].function.more"),
    ({"tool_choice": "auto"}, "conflicting_parameters", "tool_choice"),
    ({"tools": [], "tool_choice": "auto"}, "conflicting_parameters", "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": NAMED}, "unsupported_parameter", "tool_choice"),
    (
        {"tools": [WEATHER], "parallel_tool_calls": False},
        "unsupported_parameter",
        "parallel_tool_calls",
    ),
    ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
    ({"function_call": "auto"}, "unsupported_parameter", "function_call"),
    (
        {"messages": [USER, made(id="")]},
        "string_below_min_length",
        "messages.[1].tool_calls.[0].id",
    ),
    (
        {"messages": [USER, made(type="custom")]},
        "invalid_value",
        "messages.[1].tool_calls.[0].type",
    ),
    (
        {"messages": [USER, made(function={"name": "weather", "arguments": "[]"})]},
        "invalid_value",
        "messages.[1].tool_calls.[0].function.arguments",
    ),
    (
        {"messages": [USER, made(function={"name": "weather", "arguments": {}})]},
        "invalid_type",
        "messages.[1].tool_calls.[0].function.arguments",
    ),
    ({"messages": [{**USER, "tool_calls": [CALL]}]}, "invalid_value", "messages.[0].tool_calls"),
    ({"messages": [{**USER, "tool_call_id": "a"}]}, "invalid_value", "messages.[0].tool_call_id"),
    (
        {"messages": [USER, {"role": "tool", "content": "x"}]},
        "invalid_value",
        "messages.[1].tool_call_id",
    ),
    (
        {"messages": [USER, {"role": "assistant"}]},
        "missing_required_parameter",
        "messages.[1].content",
    ),
    (
        {"messages": [USER, made(), {**RESULT, "content": None}]},
        "missing_required_parameter",
        "messages.[2].content",
    ),
]


@pytest.mark.parametrize(("changes", "code", "param"), ROWS)
def test_wrong_fields_are_named(
    served: Served, changes: dict[str, Any], code: str, param: str
) -> None:
    answer = post(served, CHAT, changed(GOOD_CHAT, changes))
    check(answer, 400, code, param)
    assert served.engine.requests == []


@pytest.mark.parametrize("name", ["functions", "function_call"])
def test_the_old_names_point_to_the_new_ones(served: Served, name: str) -> None:
    answer = post(served, CHAT, changed(GOOD_CHAT, {name: [{"name": "f"}]}))
    assert "use 'tools'" in answer.json()["error"]["message"]


def test_what_asks_for_nothing_passes(served: Served) -> None:
    nothing: list[dict[str, Any]] = [
        {"tools": [], "tool_choice": "none", "functions": [], "function_call": "none"},
        {"tools": None, "tool_choice": None, "parallel_tool_calls": False},
        {"response_format": {"type": "text"}, "store": False, "service_tier": "auto"},
        {"messages": [{**USER, "tool_calls": [], "tool_call_id": None}]},
    ]
    for changes in nothing:
        assert post(served, CHAT, changed(GOOD_CHAT, changes)).status_code == 200
