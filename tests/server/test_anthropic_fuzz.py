"""Any body to /v1/messages: a request that the engine's own checks can take, or a named refusal."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.errors import CallerError
from octavo.core.receipt import Receipt
from octavo.engine.breakpoints import check_breakpoints
from octavo.engine.chat import check_messages
from octavo.engine.tools import check_tools
from octavo.engine.types import Chunk
from octavo.server.anthropic import errors as anthropic_errors
from octavo.server.anthropic.jobs import Translator
from octavo.server.anthropic.reply import MessageReply
from octavo.server.errors import fault_of
from octavo.server.streams import Streams
from tests.server.fake_engine import MODEL, FakeInfo, usage

KEEP = {"type": "ephemeral", "ttl": "5m"}
GOOD: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s", "cache_control": KEEP}],
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "auto"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": KEEP}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"x": [1, None]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "c", "cache_control": KEEP}
            ],
        },
    ],
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u"},
    "cache_control": KEEP,
    "stream": True,
}
WORDS = st.sampled_from(["text", "tool_use", "user", "assistant", "1h", "\ud800"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
CALL = '<tool_call>{"name": "f", "arguments": {"x": "<é>"}}</tool_call>'
SAID = st.sampled_from(["a ", "é", CALL, "<tool_call>", "</tool_call>", "\n"])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [(value, key) for key, _ in items] + [p for _, each in items for p in places(each)]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_change_of_a_body_is_taken_or_refused(data: st.DataObject) -> None:
    body = copy.deepcopy(GOOD)
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(places(body)))
        action = data.draw(st.sampled_from(["replace", "drop", "repeat"]))
        if action == "replace":
            container[key] = data.draw(JSON)
        elif action == "drop":
            del container[key]
        elif isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
    try:
        job = Translator(FakeInfo()).message(json.dumps(body).encode(), "")
        assert job.request.messages is not None
        check_messages(job.request.messages)
        check_tools(job.request.tools)
    except CallerError as error:
        told = anthropic_errors.body(fault_of(error), "req_1")
        assert json.loads(told)["error"]["message"]
        return
    check_breakpoints(job.request.breakpoints, job.request.messages, job.request.tools)


class Scripted:
    """A stream that says pieces of text, a token each."""

    prompt_token_ids = (1, 2, 3)
    receipt = Receipt(unkept=3)

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        for piece in self._pieces:
            yield Chunk(0, piece, (1,))
        yield Chunk(0, "", (2,), finish_reason="stop", usage=usage())

    async def cancel(self) -> None:
        return


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(SAID, max_size=6), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_streamed_answer_is_the_whole_one(texts: list[str], cuts: list[int]) -> None:
    text = "".join(texts)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    job = Translator(FakeInfo()).message(json.dumps(GOOD).encode(), "")

    def reply() -> MessageReply:
        return MessageReply(job, Streams([Scripted(pieces)]))  # type: ignore[list-item]

    async def both() -> tuple[bytes, list[bytes]]:
        return await reply().whole(), [event async for event in reply().events()]

    body, events = asyncio.run(both())
    whole = json.loads(body)
    found: list[dict[str, Any]] = []
    is_open = False
    for raw in events:
        data = json.loads(raw.split(b"data: ", 1)[1])
        if data["type"] == "content_block_start":
            assert (data["index"], is_open) == (len(found), False)
            found.append(data["content_block"])
            is_open = True
        elif data["type"] == "content_block_delta":
            assert (data["index"], is_open) == (len(found) - 1, True)
            if data["delta"]["type"] == "text_delta":
                found[-1]["text"] += data["delta"]["text"]
            else:
                found[-1]["input"] = json.loads(data["delta"]["partial_json"])
        elif data["type"] == "content_block_stop":
            is_open = False
        elif data["type"] == "message_delta":
            assert data["delta"]["stop_reason"] == whole["stop_reason"]
            assert data["usage"] == whole["usage"]
    assert not is_open
    assert without_ids(found) == without_ids(whole["content"])
    assert (whole["stop_reason"] == "tool_use") is any(b["type"] == "tool_use" for b in found)


def without_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "id"} for block in blocks]
