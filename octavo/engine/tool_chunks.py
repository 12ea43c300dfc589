"""The chunks of one request with the calls in their text made out. Knows no engine and no wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.engine.tool_parser import ToolCallParser
from octavo.engine.tools import ToolCall
from octavo.engine.types import Chunk, GenerateRequest


class ToolChunks:
    """Reads the chunks of a request in order; each that comes out has text or one call, or neither.

    A choice that called something and then stopped by itself ends with the reason "tool_calls".
    """

    def __init__(self, names: Sequence[str]) -> None:
        """`names` of the tools. Without any, chunks pass as they are."""
        self._names = names
        self._parsers: dict[int, ToolCallParser] = {}
        self._called: set[int] = set()

    @classmethod
    def of(cls, request: GenerateRequest) -> ToolChunks:
        """For the answer to `request`: what the model was not told of it cannot call."""
        return cls([tool.name for tool in request.tools] if request.tool_choice == "auto" else [])

    def read(self, chunk: Chunk) -> list[Chunk]:
        """`chunk` in one or more; tokens, log-probabilities and the end are with the last one."""
        if not self._names:
            return [chunk]
        parser = self._parsers.setdefault(chunk.choice, ToolCallParser(self._names))
        events = parser.feed(chunk.text)
        if chunk.finish_reason is not None:
            events += parser.finish()
            del self._parsers[chunk.choice]
        if any(isinstance(event, ToolCall) for event in events):
            self._called.add(chunk.choice)
        *before, last = events or [""]
        reason = chunk.finish_reason
        if reason == "stop" and chunk.choice in self._called:
            reason = "tool_calls"
        rest = [_with(Chunk(chunk.choice, "", ()), event) for event in before]
        return [*rest, _with(replace(chunk, finish_reason=reason), last)]


def _with(chunk: Chunk, event: str | ToolCall) -> Chunk:
    if isinstance(event, ToolCall):
        return replace(chunk, text="", tool_calls=(event,))
    return replace(chunk, text=event)
