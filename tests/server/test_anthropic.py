"""/v1/messages through the vendor's own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import pytest

from octavo.core.receipt import Receipt
from octavo.engine.breakpoints import Breakpoint
from octavo.engine.tools import Tool
from octavo.engine.types import Chunk, GenerateRequest
from octavo.server import sse
from tests.server.conftest import Served
from tests.server.fake_engine import HANG, MODEL, Step, usage

HI: list[Any] = [{"role": "user", "content": "hi"}]
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": HI}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=served.url, api_key="none", max_retries=0, timeout=10
    ) as client:
        yield client


def says(*texts: str, finish: str = "stop", stop: str | None = None) -> Any:
    """A script that says `texts`, one token each."""

    def script(request: GenerateRequest) -> list[Step]:
        del request
        *before, last = texts
        end = Chunk(0, last, (7,), finish_reason=finish, stop_reason=stop, usage=usage())
        return [*(Chunk(0, text, (7,)) for text in before), end]

    return script


def test_whole_answer(served: Served, claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(**ASK)
    assert answer._request_id is not None
    assert answer._request_id.startswith("req_")
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL)
    (block,) = answer.content
    assert block.type == "text"
    assert block.text == "Hello"
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.output_tokens == 2
    (request,) = served.engine.requests
    assert request.messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert request.params is not None
    assert (request.params.max_tokens, request.params.temperature) == (9, 1.0)


def test_parameters_reach_the_engine(served: Served, claude: anthropic.Anthropic) -> None:
    claude.beta.messages.create(
        **ASK,
        betas=["prompt-caching-2024-07-31"],
        system="be short",
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        service_tier="auto",
        thinking={"type": "disabled"},
        tool_choice={"type": "none"},
        extra_body={"temperature": 0.25, "top_p": 0.5, "top_k": 7},
    )
    (request,) = served.engine.requests
    params = request.params
    assert params is not None
    assert (params.temperature, params.top_p, params.top_k) == (0.25, 0.5, 7)
    assert params.stop == ("END",)
    assert request.messages is not None
    assert [message["role"] for message in request.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("finish", "stop", "reason"),
    [
        ("stop", None, "end_turn"),
        ("length", None, "max_tokens"),
        ("stop", "END", "stop_sequence"),
    ],
)
def test_stop_reasons(
    served: Served, claude: anthropic.Anthropic, finish: str, stop: str | None, reason: str
) -> None:
    served.engine.script = says("a", "b", finish=finish, stop=stop)
    answer = claude.messages.create(**ASK)
    assert (answer.stop_reason, answer.stop_sequence) == (reason, stop)
    with claude.messages.stream(**ASK) as stream:
        streamed = stream.get_final_message()
    assert (streamed.stop_reason, streamed.stop_sequence) == (reason, stop)


def test_stream_events_in_order(served: Served, claude: anthropic.Anthropic) -> None:
    served.engine.script = says("", "a", "é", "")
    events = list(claude.messages.create(**ASK, stream=True))
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, delta = events[0], events[-2]
    assert start.type == "message_start"
    assert start.message.content == []
    assert start.message.stop_reason is None
    assert start.message.usage.input_tokens == 2
    assert start.message.usage.cache_read_input_tokens == 1
    assert delta.type == "message_delta"
    assert delta.usage.output_tokens == 4
    with claude.messages.stream(**ASK) as stream:
        assert list(stream.text_stream) == ["a", "é"]


def test_an_answer_without_text_has_no_blocks(served: Served, claude: anthropic.Anthropic) -> None:
    served.engine.script = says("")
    assert claude.messages.create(**ASK).content == []
    with claude.messages.stream(**ASK) as stream:
        assert stream.get_final_message().content == []


def test_async_client(served: Served) -> None:
    async def both() -> tuple[str, str]:
        async with anthropic.AsyncAnthropic(base_url=served.url, api_key="none") as client:
            whole = await client.messages.create(**ASK)
            async with client.messages.stream(**ASK) as stream:
                text = await stream.get_final_text()
            count = await client.messages.count_tokens(model=MODEL, messages=HI)
        assert count.input_tokens == 3
        (block,) = whole.content
        assert block.type == "text"
        return block.text, text

    assert asyncio.run(both()) == ("Hello", "Hello")


def test_usage_tells_the_receipt(served: Served, claude: anthropic.Anthropic) -> None:
    served.engine.receipt = Receipt(read=1, written_5m=1, written_1h=1)
    used = claude.messages.create(**ASK).usage
    assert used.cache_creation is not None
    assert (used.input_tokens, used.cache_read_input_tokens) == (0, 1)
    assert used.cache_creation_input_tokens == 2
    assert used.cache_creation.ephemeral_1h_input_tokens == 1
    assert used.cache_creation.ephemeral_5m_input_tokens == 1
    with claude.messages.stream(**ASK) as stream:
        streamed = stream.get_final_message().usage
    assert streamed.model_dump() == used.model_dump()


def test_tools_reach_the_engine_and_calls_come_back(
    served: Served, claude: anthropic.Anthropic
) -> None:
    served.engine.script = says("Let me see.", "\n" + CALL[:20], CALL[20:], CALL)
    tools: list[Any] = [{**WEATHER, "cache_control": {"type": "ephemeral"}}]
    answer = claude.messages.create(**ASK, tools=tools, tool_choice={"type": "auto"})
    text, first, second = answer.content
    assert text.type == "text"
    assert text.text == "Let me see."
    assert first.type == second.type == "tool_use"
    assert first.id.startswith("toolu_")
    assert first.id != second.id
    assert (first.name, first.input) == ("weather", {"city": "Köln"})
    assert answer.stop_reason == "tool_use"
    (request,) = served.engine.requests
    schema = WEATHER["input_schema"]
    assert request.tools == (Tool("weather", "tells the weather", schema),)
    assert request.breakpoints == (Breakpoint(None, 0, 300),)


def test_streamed_calls(served: Served, claude: anthropic.Anthropic) -> None:
    served.engine.script = says("So:", *CALL, "done")
    kinds = []
    with claude.messages.stream(**ASK, tools=[WEATHER]) as stream:
        for event in stream:
            if event.type == "content_block_start":
                kinds.append(event.content_block.type)
                if event.content_block.type == "tool_use":
                    assert event.content_block.input == {}
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                assert json.loads(event.delta.partial_json) == {"city": "Köln"}
        answer = stream.get_final_message()
    assert kinds == ["text", "tool_use", "text"]
    call = answer.content[1]
    assert call.type == "tool_use"
    assert call.input == {"city": "Köln"}
    assert answer.stop_reason == "tool_use"


@pytest.mark.parametrize("options", [{}, {"tools": [WEATHER], "tool_choice": {"type": "none"}}])
def test_without_tools_a_call_is_text(
    served: Served, claude: anthropic.Anthropic, options: dict[str, Any]
) -> None:
    served.engine.script = says(CALL)
    answer = claude.messages.create(**ASK, **options)
    (block,) = answer.content
    assert block.type == "text"
    assert block.text == CALL
    assert answer.stop_reason == "end_turn"


def test_a_call_that_was_cut_off_is_text(served: Served, claude: anthropic.Anthropic) -> None:
    served.engine.script = says(CALL[:-5], finish="length")
    with claude.messages.stream(**ASK, tools=[WEATHER]) as stream:
        answer = stream.get_final_message()
    (block,) = answer.content
    assert block.type == "text"
    assert (block.text, answer.stop_reason) == (CALL[:-5], "max_tokens")


def test_pings_while_nothing_comes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.05)
    served.engine.script = lambda request: [0.2, *says("a", "b")(request)]
    answer = served.http.post("/v1/messages", json={**ASK, "stream": True})
    names = [line for line in answer.text.splitlines() if line.startswith("event: ")]
    assert 2 <= names.count("event: ping") <= 6
    assert names[0] == "event: ping"
    assert answer.text.count('data: {"type":"ping"}\n\n') == names.count("event: ping")
    assert names[-1] == "event: message_stop"


def test_count_tokens_renders_the_same(served: Served, claude: anthropic.Anthropic) -> None:
    body: dict[str, Any] = {"model": MODEL, "messages": HI, "system": "s", "tools": [WEATHER]}
    assert claude.messages.count_tokens(**body).input_tokens == 3
    claude.messages.create(**body, max_tokens=5)
    counted, asked = served.engine.requests
    assert (counted.messages, counted.tools) == (asked.messages, asked.tools)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request(
    served: Served, eventually: Callable[[Callable[[], bool]], None], stream: bool
) -> None:
    served.engine.script = lambda request: [Chunk(0, "a", (1,)), HANG]
    with (
        pytest.raises(httpx.ReadTimeout),
        served.http.stream(
            "POST", "/v1/messages", json={**ASK, "stream": stream}, timeout=0.3
        ) as answer,
    ):
        for _ in answer.iter_raw():
            pass
    eventually(lambda: served.engine.cancelled == {0})
