"""An answer's content as Anthropic writes it: blocks of text and of calls, whole or as events.

Knows no usage and no HTTP.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from octavo.engine.tools import ToolCall
from octavo.server.sse import encoded, event

Piece = str | ToolCall


def named(kind: str, **fields: Any) -> bytes:
    """One event of this API: its type is told twice."""
    return event(encoded({"type": kind} | fields), name=kind.encode("ascii"))


def call_id() -> str:
    return f"toolu_{secrets.token_hex(12)}"


def blocks(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    """All pieces of an answer as content blocks; neighbouring texts are one."""
    found: list[dict[str, Any]] = []
    texts: list[str] = []

    def flush() -> None:
        if text := "".join(texts):
            found.append({"type": "text", "text": text})
        texts.clear()

    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        flush()
        arguments = json.loads(piece.arguments)
        found.append({"type": "tool_use", "id": call_id(), "name": piece.name, "input": arguments})
    flush()
    return found


class BlockEvents:
    """The events of the blocks of one answer, as they grow."""

    def __init__(self) -> None:
        self._index = 0
        self._text_is_open = False

    def add(self, piece: Piece) -> Iterator[bytes]:
        """A piece's events. A call is known only when it is closed, so it is one delta."""
        if isinstance(piece, str):
            if not self._text_is_open:
                yield self._start({"type": "text", "text": ""})
                self._text_is_open = True
            yield self._delta({"type": "text_delta", "text": piece})
            return
        yield from self.end()
        yield self._start({"type": "tool_use", "id": call_id(), "name": piece.name, "input": {}})
        yield self._delta({"type": "input_json_delta", "partial_json": piece.arguments})
        yield self._stop()

    def end(self) -> Iterator[bytes]:
        """Close the block that is open, if one is."""
        if self._text_is_open:
            self._text_is_open = False
            yield self._stop()

    def _start(self, block: dict[str, Any]) -> bytes:
        return named("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named("content_block_delta", index=self._index, delta=delta)

    def _stop(self) -> bytes:
        self._index += 1
        return named("content_block_stop", index=self._index - 1)
