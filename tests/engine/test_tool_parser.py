"""Tool calls in a stream: what is one, what is text, and that the cutting does not matter."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.tool_parser import MAX_SPACE_CHARS, ToolCallParser
from octavo.engine.tools import MAX_JSON_DEPTH, ToolCall

Event = str | ToolCall
NAMES = ("look", "add_2")
LOOK = ToolCall("look", "{}")
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
MAX_CHARS = 100


def parsed(pieces: list[str], *, max_call_chars: int = MAX_CHARS) -> list[Event]:
    """All events, neighbouring texts joined."""
    parser = ToolCallParser(NAMES, max_call_chars=max_call_chars)
    events: list[Event] = []
    for event in [event for piece in pieces for event in parser.feed(piece)] + parser.finish():
        if isinstance(event, str) and events and isinstance(events[-1], str):
            events[-1] += event
        else:
            events.append(event)
    return events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (CALL, [LOOK]),
        (f"I look.\n\n{CALL}\n", ["I look.", LOOK]),
        (f"{CALL}\n{CALL}", [LOOK, LOOK]),
        (f"a {CALL} b", ["a", LOOK, "b"]),
        (f"{CALL}{' ' * 500}b", [LOOK, "b"]),
        (f"a{' ' * 100}{CALL}", ["a" + " " * (100 - MAX_SPACE_CHARS), LOOK]),
        (
            '<tool_call>\n{"arguments": {"a": 1.50, "b": "é"}, "name": "add_2"}\n</tool_call>',
            [ToolCall("add_2", '{"a": 1.50, "b": "é"}')],
        ),
        # A tag within a string is part of the string, escapes or not.
        (
            '<tool_call>{"name":"look","arguments":{"a":"\\"</tool_call>\\\\"}}</tool_call>',
            [ToolCall("look", '{"a":"\\"</tool_call>\\\\"}')],
        ),
        # The first is never closed, the second is a call.
        (f'<tool_call>{{"name": 1{CALL}', ['<tool_call>{"name": 1', LOOK]),
        # A string without an end is over at the end of the line.
        (
            f'<tool_call>\n{{"name": "look\n</tool_call>{CALL}',
            ['<tool_call>\n{"name": "look\n</tool_call>', LOOK],
        ),
    ],
)
def test_what_is_a_call(text: str, events: list[Event]) -> None:
    assert parsed([text]) == events
    assert parsed(list(text)) == events


MALFORMED = {
    "empty": "",
    "not JSON": "look()",
    "a list": "[]",
    "another name": '{"name": "rm", "arguments": {}}',
    "no name": '{"arguments": {}}',
    "a name that is a number": '{"name": 1, "arguments": {}}',
    "no arguments": '{"name": "look"}',
    "arguments that are a list": '{"name": "look", "arguments": []}',
    "arguments that are text": '{"name": "look", "arguments": "{}"}',
    "a key too many": '{"name": "look", "arguments": {}, "id": 1}',
    "a key twice": '{"name": "look", "name": "look", "arguments": {}}',
    "two objects": '{"name": "look", "arguments": {}} {}',
    "a comma too many": '{"name": "look", "arguments": {},}',
    "not a number": '{"name": "look", "arguments": {"a": NaN}}',
    "out of range": '{"name": "look", "arguments": {"a": 1e999}}',
    "too many digits": '{"name": "look", "arguments": {"a": ' + "9" * 5000 + "}}",
    "a colon missing": '{"name" "look", "arguments": {}}',
    "a bracket missing": '{"name": "look", "arguments": {}',
    "too deep": '{"name": "look", "arguments": {"a": ' + "[" * MAX_JSON_DEPTH + "]" * 99 + "}}",
    "far too deep": '{"name": "look", "arguments": {"a": ' + "[" * 50_000,
    "a stray quote": '{"name": "look, "arguments": {}}',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_call_is_the_text_it_was(name: str) -> None:
    text = f"so \n <tool_call>{MALFORMED[name]}</tool_call> \n"
    assert parsed([text], max_call_chars=100_000) == [text]


@pytest.mark.parametrize(
    "text",
    ["<tool_call>", f"a \n{CALL[:-1]}", "a <tool", "a \n", "<tool_call>" * 9, "</tool_call>"],
)
def test_an_open_end_is_the_text_it_was(text: str) -> None:
    assert parsed(list(text)) == [text]


def test_a_call_may_have_just_as_many_characters_as_allowed() -> None:
    body = '{"name": "look", "arguments": {"a": "' + "x" * 50 + '"}}'
    text = f"<tool_call>{body}</tool_call>"
    assert parsed([text], max_call_chars=len(body)) == [ToolCall("look", body[30:-1])]
    for pieces in ([text], list(text)):
        assert parsed(pieces, max_call_chars=len(body) - 1) == [text]
    # What follows a call that is too long is read as ever.
    assert parsed([text + CALL], max_call_chars=len(body) - 1) == [text, LOOK]


def test_nothing_is_held_back_longer_than_needed() -> None:
    parser = ToolCallParser(NAMES)
    told = [parser.feed(piece) for piece in ("Hi", " there", " ", "<", "b>", "\n<tool", "_call>")]
    assert told == [["Hi"], [" there"], [], [], [" <b>"], [], []]
    assert parser.feed(CALL.removeprefix("<tool_call>")) == [LOOK]
    assert parser.feed("\n") == []
    assert parser.feed("Done") == ["Done"]
    assert parser.finish() == []


SCRAPS = [
    *("<tool_call>", "</tool_call>", '{"name": "look", "arguments": ', '{"a": "', '"}', "}", CALL),
    *("<", "tool_call>", '"', "\\", "\n", " ", " " * 40, "x" * 30, '{"name": "add_2"', "é", "{"),
]
TEXTS = st.lists(st.sampled_from(SCRAPS), max_size=25).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, data=st.data())
def test_any_cutting_gives_the_same_events(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = parsed([text])
    assert parsed(pieces) == whole
    assert parsed(list(text)) == whole


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_no_text_is_lost_or_made_up(text: str) -> None:
    """Every text event is found in the input in order; between them are calls and white space."""
    at = 0
    for event in parsed([text]):
        if isinstance(event, str):
            assert text.find(event, at) >= at
            at = text.find(event, at) + len(event)
            continue
        start = text.find("<tool_call>", at)
        end = text.find("</tool_call>", text.find(event.arguments, start))
        assert not text[at:start].strip()
        body = json.loads(text[start + len("<tool_call>") : end])
        assert body == {"name": event.name, "arguments": json.loads(event.arguments)}
        at = end + len("</tool_call>")
    assert not text[at:].strip()


@settings(max_examples=200, deadline=None)
@given(text=TEXTS.map(lambda text: text.replace("look", "none").replace("add_2", "none")))
def test_text_without_a_valid_call_comes_back_as_it_was(text: str) -> None:
    assert "".join(map(str, parsed(list(text)))) == text


@pytest.mark.parametrize(
    "unit",
    ["<tool_call>", '<tool_call>"', "<tool_call>{</tool_call>", '"', "<", "\\", " ", CALL],
)
def test_time_is_linear_and_memory_bounded(unit: str) -> None:
    def seconds(n_chars: int, piece: int) -> float:
        parser = ToolCallParser(NAMES, max_call_chars=1000)
        text = unit * (n_chars // len(unit))
        started = time.process_time()
        for at in range(0, len(text), piece):
            parser.feed(text[at : at + piece])
            held = parser._call.n_chars if parser._call is not None else 0
            assert held <= 1000
            assert len(parser._tail) <= MAX_SPACE_CHARS + len("</tool_call>")
        return time.process_time() - started

    for piece in (3, 10**9):
        assert seconds(200_000, piece) < 10 * seconds(50_000, piece) + 0.5
