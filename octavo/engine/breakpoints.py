"""Places of a conversation up to which its prompt is to be kept, and where they fall in its tokens.

Owns both values and the way from one to the other: the conversation is rendered a second time with
a mark at each place. Knows no wire format and no cache.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from octavo.core.errors import RequestError
from octavo.engine.tools import Tool

MAX_BREAKPOINTS = 4  # each may cost tokenising what comes before it
MAX_TTL_SECONDS = 24 * 3600
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """The end of one part of a conversation: keep the prompt up to here.

    `message`: its index, or None for the tools. `part`: of a message one of its texts or, counted
    on behind them, of its calls; else one of the tools. `ttl_seconds`: how long after the last use.
    """

    message: int | None
    part: int
    ttl_seconds: int


@dataclass(frozen=True, slots=True)
class Keep:
    """The first `end` tokens of a prompt are to be kept for `ttl_seconds`."""

    end: int
    ttl_seconds: int


def check_breakpoints(
    breakpoints: Sequence[Breakpoint], messages: Messages | None, tools: Sequence[Tool]
) -> None:
    """Raises RequestError unless they are few and each is at a part of messages or tools."""
    if not breakpoints:
        return
    if messages is None:
        raise RequestError("breakpoints need messages, not a plain prompt", param="breakpoints")
    if len(breakpoints) > MAX_BREAKPOINTS:
        raise RequestError(f"breakpoints takes at most {MAX_BREAKPOINTS}", param="breakpoints")
    for each in breakpoints:
        if not 0 <= each.part < _n_parts(each.message, messages, tools):
            raise RequestError("a breakpoint is at no part of the prompt", param="breakpoints")
        if not 1 <= each.ttl_seconds <= MAX_TTL_SECONDS:
            raise RequestError(
                f"a breakpoint's ttl_seconds must be from 1 to {MAX_TTL_SECONDS}",
                param="breakpoints",
            )


def _n_parts(message: int | None, messages: Messages, tools: Sequence[Tool]) -> int:
    if message is None:
        return len(tools)
    if not 0 <= message < len(messages):
        return 0
    texts, calls = _parts(messages[message])
    return len(texts) + len(calls)


def _parts(message: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Text parts and calls of one message."""
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return list(content or ()), list(calls or ())


def marked(
    messages: Messages,
    tools: Sequence[Tool],
    breakpoints: Sequence[Breakpoint],
    marks: Sequence[str],
) -> tuple[list[dict[str, Any]], list[Tool]]:
    """Messages and tools with the mark of each breakpoint at its place; none at tools not shown."""
    shown, tools = [dict(message) for message in messages], list(tools)
    for each, mark in zip(breakpoints, marks, strict=True):
        if each.message is not None:
            shown[each.message].update(_marked_part(shown[each.message], each.part, mark))
        elif tools:
            tool = tools[each.part]
            parameters = json.loads(_marked_json(json.dumps(tool.parameters), mark))
            tools[each.part] = replace(tool, parameters=parameters)
    return shown, tools


def _marked_part(message: Mapping[str, Any], part: int, mark: str) -> dict[str, Any]:
    """What changes in `message`: text ends with the mark, and so do the arguments of a call."""
    texts, calls = _parts(message)
    if part < len(texts):
        texts[part] = {**texts[part], "text": texts[part]["text"] + mark}
        return {"content": texts}
    call = calls[part - len(texts)]
    arguments = _marked_json(call["function"]["arguments"], mark)
    calls[part - len(texts)] = {**call, "function": {**call["function"], "arguments": arguments}}
    return {"tool_calls": calls}


def _marked_json(text: str, mark: str) -> str:
    """JSON text of an object with the mark in its last string; an empty one gets a member."""
    head, quote, tail = text.rpartition('"')
    return f"{head}{mark}{quote}{tail}" if quote else text.replace("{", "{" + _member(mark), 1)


def _member(mark: str) -> str:
    return f'"{mark}": ""'


def places(
    breakpoints: Sequence[Breakpoint], marks: Sequence[str], *, text: str, marked_text: str
) -> list[tuple[int, Breakpoint]]:
    """Where in `text` the breakpoints are: characters before each. `marked_text` has the marks.

    One that the template does not show is left out.
    """
    found: list[tuple[int, Breakpoint]] = []
    for each, mark in zip(breakpoints, marks, strict=True):
        before, shown, _ = marked_text.rpartition(mark)
        if not shown:
            continue
        for other in marks:
            before = before.replace(_member(other), "").replace(other, "")
        # A mark may keep the template from trimming: what is not in the real text does not count.
        found.append((_shared(before, text), each))
    return found


def n_tokens_before(
    beginnings: Sequence[str],
    text: str,
    tokens: Sequence[int],
    *,
    n_bytes: Callable[[str], int],
    token_bytes: Callable[[int], bytes],
    encode: Callable[[str], Sequence[int]],
) -> list[int]:
    """How many of `tokens`, which `encode` made of `text`, lie wholly in each of `beginnings`.

    Read off the tokens' lengths where these add up to the text's `n_bytes`. Where they do not,
    because the tokenizer changes what it reads, it is what the beginning shares if encoded alone.
    """
    ends = list(accumulate(len(token_bytes(token)) for token in tokens))
    if ends and ends[-1] == n_bytes(text):
        return [bisect_right(ends, n_bytes(each)) for each in beginnings]
    return [_shared(encode(each), tokens) for each in beginnings]


def _shared(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Length of the common beginning."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return next(i for i in range(shorter) if left[i] != right[i])
