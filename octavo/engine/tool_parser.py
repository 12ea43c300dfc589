"""Finds tool calls in a model's answer while it is being written.

A call is `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Owns what counts as one; knows no
prompt and no wire format. Memory is bounded by the longest call, time is linear in the text, and
what comes out does not depend on where the text was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from octavo.core.errors import RequestError
from octavo.engine.tools import MAX_CALL_CHARS, ToolCall, arguments_object, refuse_constant

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
MAX_SPACE_CHARS = 64

# What matters next: outside of a JSON string, within one, and where the JSON is broken already.
_OUTSIDE = re.compile(f'"|{OPEN}|{CLOSE}')
_STRING = re.compile(r'\\.|["\x00-\x1f]', re.DOTALL)
_BROKEN = re.compile(f"{OPEN}|{CLOSE}")
_SPACE = re.compile(r"[ \t\r\n]*")


class ToolCallParser:
    """Text in, text and calls out, in their order.

    What is held back is only what may yet turn out to be (part of) a call. A call that is not JSON
    of the right form, names no tool, is longer than allowed or is never closed comes back as the
    text it was. A closing tag within a JSON string is part of the string. White space around a call
    belongs to it: up to MAX_SPACE_CHARS before it, all of it after.
    """

    def __init__(self, names: Collection[str], *, max_call_chars: int = MAX_CALL_CHARS) -> None:
        """`names` of the tools; `max_call_chars` between the two tags."""
        self._names = frozenset(names)
        self._max_chars = max_call_chars
        self._tail = ""  # not looked at for good: may be the beginning of something
        self._after_call = False
        self._call: _OpenCall | None = None

    def feed(self, text: str) -> list[str | ToolCall]:
        """What is certain after `text`. No two strings follow each other; none is empty."""
        events: list[str | ToolCall] = []
        window, at = self._tail + text, 0
        self._tail = ""
        while at < len(window):
            at = (
                self._read_text(window, at, events)
                if self._call is None
                else self._read_call(self._call, window, at, events)
            )
        return _joined(events)

    def finish(self) -> list[str | ToolCall]:
        """What was held back: the answer has ended."""
        rest = self._tail if self._call is None else self._call.text() + self._tail
        self._tail, self._call, self._after_call = "", None, False
        return [rest] if rest else []

    def _read_text(self, window: str, at: int, events: list[str | ToolCall]) -> int:
        """Reads on to the next opening tag, or to the end. Returns where it stands."""
        if self._after_call:
            at = _end_of_space(window, at)
            if at == len(window):
                return at
            self._after_call = False
        found = window.find(OPEN, at)
        tag = found if found >= 0 else len(window) - _n_begun(OPEN, window, at, len(window))
        end = _start_of_space(window, at, tag)
        events.append(window[at:end])
        if found < 0:
            self._tail = window[end:]
            return len(window)
        self._call = _OpenCall(window[end:found] + OPEN)
        return found + len(OPEN)

    def _read_call(
        self, call: _OpenCall, window: str, at: int, events: list[str | ToolCall]
    ) -> int:
        """Reads on to the tag that ends the call, or to the end. Returns where it stands."""
        limit = at + self._max_chars - call.n_chars
        tag, held = call.scan(window, at, limit + len(CLOSE))
        end = held if tag is None else tag.start()
        if end > limit:
            events.append(call.text() + window[at:limit])
            self._call = None
            return limit
        call.add(window[at:end])
        if tag is None:
            self._tail = window[held:]
            return len(window)
        self._call = None
        if tag[0] == OPEN:
            events.append(call.text())
            self._call = _OpenCall(OPEN)
        elif (made := _tool_call(call.body(), self._names)) is not None:
            events.append(made)
            self._after_call = True
        else:
            events.append(call.text() + CLOSE)
        return tag.end()


class _OpenCall:
    """A call that has not been closed. `head`: the tag that opened it and the space before."""

    __slots__ = ("_head", "_next", "_pieces", "n_chars")

    def __init__(self, head: str) -> None:
        self._head = head
        self._pieces: list[str] = []
        self._next = _OUTSIDE
        self.n_chars = 0

    def scan(self, window: str, at: int, stop: int) -> tuple[re.Match[str] | None, int]:
        """The next tag outside of strings before `stop`; without one, from where to hold back."""
        stop = min(stop, len(window))
        while (found := self._next.search(window, at, stop)) is not None:
            at = found.end()
            mark = found[0]
            if mark == '"':
                self._next = _STRING if self._next is _OUTSIDE else _OUTSIDE
            elif mark[0] == "<":
                return found, at
            elif mark[0] != "\\":  # JSON has no line breaks within a string: the next tag ends it
                self._next = _BROKEN
        if self._next is _STRING:
            return None, stop - (at < stop and window[stop - 1] == "\\")
        begun = max(_n_begun(tag, window, at, stop) for tag in (OPEN, CLOSE))
        return None, stop - begun

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.n_chars += len(text)

    def body(self) -> str:
        return "".join(self._pieces)

    def text(self) -> str:
        return self._head + self.body()


def _tool_call(body: str, names: Collection[str]) -> ToolCall | None:
    """The call that `body` is, or None."""
    try:
        members = _members(body)
        if members.keys() != {"name", "arguments"}:
            return None
        name = json.loads(members["name"])
        if not isinstance(name, str) or name not in names:
            return None
        arguments_object(members["arguments"], "arguments")
    except (ValueError, RecursionError, RequestError):
        return None
    return ToolCall(name, members["arguments"])


def _members(text: str) -> dict[str, str]:
    """Key → JSON text of its value, of one JSON object. Raises ValueError for anything else."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    found: dict[str, str] = {}
    at = _after(text, 0, "{")
    while True:
        key, end = decoder.raw_decode(text, at)
        if not isinstance(key, str) or key in found:
            raise ValueError("a key must be a string, and be there once")
        start = _after(text, end, ":")
        _, end = decoder.raw_decode(text, start)
        found[key] = text[start:end]
        at = _end_of_space(text, end)
        if text[at : at + 1] != ",":
            break
        at = _after(text, at, ",")
    if _after(text, at, "}") != len(text):
        raise ValueError("something follows the object")
    return found


def _after(text: str, at: int, mark: str) -> int:
    """Where the next value starts, behind `mark` and the space around it."""
    at = _end_of_space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} is missing")
    return _end_of_space(text, at + 1)


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing at all, too
    return found.end()


def _start_of_space(text: str, low: int, end: int) -> int:
    """Where the white space before `end` begins, at most MAX_SPACE_CHARS of it."""
    low = max(low, end - MAX_SPACE_CHARS)
    return low + len(text[low:end].rstrip(" \t\r\n"))


def _n_begun(tag: str, text: str, low: int, end: int) -> int:
    """How many of the last characters of text[low:end] may be the beginning of `tag`."""
    most = min(len(tag) - 1, end - low)
    return next((n for n in range(most, 0, -1) if text.endswith(tag[:n], low, end)), 0)


def _joined(events: list[str | ToolCall]) -> list[str | ToolCall]:
    joined: list[str | ToolCall] = []
    texts: list[str] = []
    for event in [*events, None]:
        if isinstance(event, str):
            texts.append(event)
            continue
        if text := "".join(texts):
            joined.append(text)
        texts.clear()
        if event is not None:
            joined.append(event)
    return joined
