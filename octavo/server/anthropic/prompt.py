"""From Anthropic's tools, system prompt and turns to chat messages, with the places to keep.

Owns the order of blocks, which of them may stand where, and the header line of coding agents.
Knows no HTTP and no engine.
"""

from __future__ import annotations

import json
from typing import Any

from octavo.core.errors import RequestError, Unsupported
from octavo.engine.breakpoints import Breakpoint
from octavo.engine.tools import Tool, arguments_object, check_name
from octavo.server.anthropic.blocks import Block, ToolResultBlock, ToolUseBlock
from octavo.server.anthropic.keep import KeepMarks, Place
from octavo.server.anthropic.wire import CountRequest

# Coding agents begin their system prompt with a line that is new in each request. With it no two
# prompts share a beginning, and nothing is ever read from a cache.
AGENT_HEADER = "x-anthropic-billing-header:"
FAILED = "Error: "  # before the result of a call that failed: templates have no field for it


class Conversation:
    """Chat messages as they grow, block by block in the order of the prompt."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.marks = KeepMarks()
        self._open: dict[str, str] = {}  # calls without a result: id → where it is

    def add(self, role: str, block: Block, where: str) -> None:
        """One block of a turn. Raises RequestError naming what is wrong."""
        owner = {"tool_use": "assistant", "tool_result": "user"}.get(block.type, role)
        if role != owner:
            raise RequestError(
                f"{block.type} blocks stand in messages of role {owner} only", param=where
            )
        if isinstance(block, ToolResultBlock):
            self._add_result(block, where)
            return
        if self._open and (role != "assistant" or self.messages[-1]["role"] == "tool"):
            raise RequestError(
                f"{len(self._open)} calls before have no result: the next message must begin with "
                "a tool_result block for each",
                param=where,
            )
        if isinstance(block, ToolUseBlock):
            self._add_call(block, where)
        else:
            self._turn(role)["content"].append({"type": "text", "text": block.text})
            self.marks.add(block.cache_control, self._last("content"), f"{where}.cache_control")

    def _add_call(self, block: ToolUseBlock, where: str) -> None:
        """A call goes behind the turn's text, wherever it stood: that is how templates write it."""
        if block.id in self._open:
            raise RequestError("two calls have the same id", param=f"{where}.id")
        self._open[block.id] = where
        arguments = json.dumps(block.input, ensure_ascii=False)
        arguments_object(arguments, f"{where}.input")
        function = {"name": check_name(block.name, f"{where}.name"), "arguments": arguments}
        calls = self._turn("assistant").setdefault("tool_calls", [])
        calls.append({"id": block.id, "type": "function", "function": function})
        self.marks.add(block.cache_control, self._last("tool_calls"), f"{where}.cache_control")

    def _add_result(self, block: ToolResultBlock, where: str) -> None:
        """A result is a message of its own. One that failed begins with FAILED."""
        if self._open.pop(block.tool_use_id, None) is None:
            raise RequestError(
                "this is the id of no tool_use block in the message before that still lacks its "
                "result",
                param=f"{where}.tool_use_id",
            )
        texts = [text.text for text in block.content] or [""]
        if block.is_error:
            texts[0] = FAILED + texts[0]
        parts = [{"type": "text", "text": text} for text in texts]
        self.messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": parts})
        for item, text in enumerate(block.content):
            place = Place(len(self.messages) - 1, "content", item)
            inside = f"{where}.content.[{item}].cache_control"
            self.marks.add(text.cache_control, place, inside)
        self.marks.add(block.cache_control, self._last("content"), f"{where}.cache_control")

    def _turn(self, role: str) -> dict[str, Any]:
        """The message to go on with: neighbours of one role are one turn."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        return self.messages[-1]

    def _last(self, key: str) -> Place:
        return Place(len(self.messages) - 1, key, len(self.messages[-1][key]) - 1)

    def close(self) -> Place:
        """The last block. Raises RequestError unless the user had the last word."""
        if self.messages[-1]["role"] == "assistant":
            raise Unsupported(
                "the last message is the assistant's, and continuing it is not supported: end "
                "with a message of the user",
                param="messages",
            )
        if self._open:
            raise RequestError(
                "this call has no tool_result block after it", param=next(iter(self._open.values()))
            )
        return self._last("content")

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """The places to keep as the engine counts them: a message's calls behind its texts."""
        return tuple(
            Breakpoint(place.message, place.item + self._n_before(place), ttl_seconds)
            for place, ttl_seconds in self.marks.marks
        )

    def _n_before(self, place: Place) -> int:
        if place.message is None or place.key == "content":
            return 0
        return len(self.messages[place.message]["content"])


def conversation(wire: CountRequest, *, keep_agent_headers: bool) -> Conversation:
    """The prompt of a request. Raises RequestError naming what is wrong."""
    built = Conversation()
    for item, tool in enumerate(wire.tools or ()):
        place = Place(None, "tools", item)
        built.marks.add(tool.cache_control, place, f"tools.[{item}].cache_control")
    for item, block in enumerate(wire.system or ()):
        if item == 0 and not keep_agent_headers and block.text.startswith(AGENT_HEADER):
            block = block.model_copy(update={"text": block.text.partition("\n")[2]})
            if not block.text:
                continue
        built.add("system", block, f"system.[{item}]")
    for number, message in enumerate(wire.messages):
        for item, each in enumerate(message.content):
            built.add(message.role, each, f"messages.[{number}].content.[{item}]")
    built.marks.add_for_all(wire.cache_control, built.close())
    return built


def tools(wire: CountRequest) -> tuple[Tool, ...]:
    """What the model may call; the engine checks it."""
    return tuple(
        Tool(each.name, each.description or "", each.input_schema) for each in wire.tools or ()
    )
