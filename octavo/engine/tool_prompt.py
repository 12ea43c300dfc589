"""Tools, calls and results in a prompt: as the chat template writes them, or as plain text.

Owns the default texts and the question whether a template can do it itself. Knows no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.core.errors import RequestError
from octavo.engine.tool_parser import CLOSE, OPEN, ToolCallParser
from octavo.engine.tools import Tool, ToolCall, arguments_object

Message = dict[str, Any]
Render = Callable[[list[Message], list[dict[str, Any]] | None], str]

INTRODUCTION = """\
You can use functions. Each line between the next two tags describes one as a JSON object:
<tools>
"""
INSTRUCTIONS = """
</tools>
When a function helps, call it by writing its name and its arguments as one JSON object, like this:
<tool_call>
{"name": "the function's name", "arguments": {"an argument's name": "its value"}}
</tool_call>
Write a pair of tags for each call. The result of each call is then given to you between \
<tool_response> and </tool_response>. When no function helps, answer in words."""

_PROBE = Tool(
    "probe_a1", "tells b2c3", {"type": "object", "properties": {"d4": {"type": "string"}}}
)
_PROBE_ARGUMENTS = '{"d4": "e5f6"}'
_PROBE_RESULT = "g7h8"
_PROBE_ID = "call00001"  # nine letters and digits: some templates insist


def has_tools(messages: Sequence[Message]) -> bool:
    """Whether a call or a result is among the messages."""
    return any(message["role"] == "tool" or "tool_calls" in message for message in messages)


def speaks_tools(render: Render) -> bool:
    """Whether a template shows tools, calls and results, and writes calls as we read them.

    Found out by rendering a small conversation and reading the call back. One that shows tools but
    has another way of writing calls would teach the model answers that nobody here could read.
    """
    call = {"name": _PROBE.name, "arguments": _PROBE_ARGUMENTS}
    messages: list[Message] = [
        {"role": "user", "content": "i9"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": _PROBE_ID, "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": _PROBE_ID, "content": _PROBE_RESULT},
    ]
    try:
        text = render(for_template(messages), tools_for_template([_PROBE]))
    except RequestError:
        return False
    parser = ToolCallParser([_PROBE.name])
    calls = [event for event in parser.feed(text) if isinstance(event, ToolCall)]
    shown = all(each in text for each in (_PROBE.description, *_PROBE.parameters, _PROBE_RESULT))
    return shown and [json.loads(each.arguments) for each in calls] == [{"d4": "e5f6"}]


def tools_for_template(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """Tools in the form that templates read; None when there are none."""
    return [{"type": "function", "function": tool.signature()} for tool in tools] or None


def for_template(messages: Sequence[Message]) -> list[Message]:
    """Messages with what templates look for: arguments as objects, a result with its name."""
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        if "tool_calls" in message:
            calls = [_opened(call) for call in message["tool_calls"]]
            names.update((call["id"], call["function"]["name"]) for call in calls)
            found.append({**message, "tool_calls": calls})
        elif message["role"] == "tool":
            found.append({"name": names[message["tool_call_id"]], **message})
        else:
            found.append(message)
    return found


def _opened(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = arguments_object(function["arguments"], "arguments")
    return {**call, "function": {"name": function["name"], "arguments": arguments}}


def as_text(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Messages that any template can render: everything about tools has become text.

    The tools are described at the end of the system message, which is made if there is none. Calls
    follow the assistant's words. Results that belong together are one message of the user.
    """
    written: list[Message] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        if results:
            written.append(_user(results))
            results = []
        written.append(_with_calls(message) if "tool_calls" in message else message)
    if results:
        written.append(_user(results))
    return _with_system(written, system_text(tools)) if tools else written


def system_text(tools: Sequence[Tool]) -> str:
    """What the default rendering tells a model about its tools."""
    lines = (json.dumps(tool.signature(), ensure_ascii=False) for tool in tools)
    return INTRODUCTION + "\n".join(lines) + INSTRUCTIONS


def _with_system(messages: list[Message], text: str) -> list[Message]:
    if messages and messages[0]["role"] in ("system", "developer"):
        first = messages[0]
        merged = f"{first['content']}\n\n{text}" if first["content"] else text
        return [{**first, "content": merged}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _with_calls(message: Message) -> Message:
    """The assistant's words and then its calls, as it wrote them."""
    parts = [message["content"]] if message["content"] else []
    for call in message["tool_calls"]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        parts.append(f'{OPEN}\n{{"name": "{name}", "arguments": {arguments}}}\n{CLOSE}')
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join(parts)}


def _user(results: list[str]) -> Message:
    return {"role": "user", "content": "\n".join(results)}
