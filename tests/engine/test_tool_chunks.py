"""Calls made out of a request's chunks, and what a request with tools must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.core.errors import RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.chat import ChatFormat
from octavo.engine.collect import Collector
from octavo.engine.hf_tokenizer import from_folder
from octavo.engine.prepare import Preparer
from octavo.engine.tool_chunks import ToolChunks
from octavo.engine.tools import Tool, ToolCall
from octavo.engine.types import Chunk, GenerateRequest, Usage

LOOK = Tool("look", "", {})
CALLED = ToolCall("look", "{}")
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
MESSAGES = [{"role": "user", "content": "hi"}]
REQUEST = GenerateRequest(messages=MESSAGES, tools=[LOOK])
USAGE = Usage(1, 2, 0)


def test_each_chunk_has_text_or_one_call_and_the_last_one_the_rest() -> None:
    whole = Chunk(0, f"a {CALL}{CALL}b", (1, 2), finish_reason="stop", usage=USAGE)
    assert ToolChunks.of(REQUEST).read(whole) == [
        Chunk(0, "a", ()),
        Chunk(0, "", (), tool_calls=(CALLED,)),
        Chunk(0, "", (), tool_calls=(CALLED,)),
        Chunk(0, "b", (1, 2), finish_reason="tool_calls", usage=USAGE),
    ]


def test_choices_are_read_apart() -> None:
    chunks = ToolChunks.of(REQUEST)
    assert chunks.read(Chunk(0, CALL[:20], (1,))) == [Chunk(0, "", (1,))]
    assert chunks.read(Chunk(1, CALL[20:], (2,), finish_reason="stop")) == [
        Chunk(1, CALL[20:], (2,), finish_reason="stop")
    ]
    (last,) = chunks.read(Chunk(0, CALL[20:], (3,), finish_reason="stop"))
    assert (last.tool_calls, last.finish_reason) == ((CALLED,), "tool_calls")


@pytest.mark.parametrize("finish", ["length", "error", "abort"])
def test_another_end_stays_what_it_is(finish: str) -> None:
    chunks = ToolChunks.of(REQUEST)
    chunks.read(Chunk(0, CALL, (1,)))
    assert chunks.read(Chunk(0, "", (), finish_reason=finish)) == [
        Chunk(0, "", (), finish_reason=finish)
    ]


@pytest.mark.parametrize("fields", [{"tools": ()}, {"tools": [LOOK], "tool_choice": "none"}])
def test_without_tools_chunks_pass(fields: dict[str, Any]) -> None:
    chunk = Chunk(0, CALL, (1,), finish_reason="stop")
    assert ToolChunks.of(GenerateRequest(messages=MESSAGES, **fields)).read(chunk) == [chunk]


def test_an_output_has_its_calls() -> None:
    collector = Collector(1, tools=ToolChunks.of(REQUEST))
    for piece in (f"a {CALL[:9]}", CALL[9:]):
        collector.take(Chunk(0, piece, (1,)))
    collector.take(Chunk(0, "", (), finish_reason="stop"))
    (choice,) = collector._choices
    assert (choice.text, choice.tool_calls) == ("a", [CALLED])
    assert (choice.finish_reason, choice.token_ids) == ("tool_calls", [1, 1])


@pytest.fixture(scope="module")
def preparer(folders: dict[str, Path]) -> Preparer:
    return Preparer(
        from_folder(folders["byte_level"]),
        vocab_size=420,
        max_model_len=4000,
        eos_token_ids=[2],
        defaults=SamplingParams(),
    )


def test_tools_are_in_the_prompt_unless_they_must_not_be_called(
    preparer: Preparer, folders: dict[str, Path]
) -> None:
    chat = ChatFormat(from_folder(folders["byte_level"]))
    assert preparer.prepare(REQUEST).tokens == chat.encode(MESSAGES, tools=[LOOK])
    silent = GenerateRequest(messages=MESSAGES, tools=[LOOK], tool_choice="none")
    assert preparer.prepare(silent).tokens == chat.encode(MESSAGES)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": MESSAGES, "tools": [Tool("a b", "", {})]}, "tools.[0].name"),
        ({"messages": MESSAGES, "tools": [LOOK], "tool_choice": "required"}, "tool_choice"),
        ({"prompt": "hi", "tools": [LOOK]}, "tools"),
        ({"prompt_token_ids": [5], "tools": [LOOK]}, "tools"),
    ],
)
def test_wrong_requests_are_named(preparer: Preparer, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        preparer.prepare(GenerateRequest(**fields))
    assert caught.value.param == param
