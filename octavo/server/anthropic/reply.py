"""From chunks to Anthropic's answers, whole or as events. Knows no HTTP and no engine."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any

from octavo.engine.types import Chunk
from octavo.server.anthropic.content import BlockEvents, Piece, blocks, named
from octavo.server.anthropic.jobs import MessageJob
from octavo.server.anthropic.usage import usage_object
from octavo.server.calling import with_calls
from octavo.server.sse import encoded
from octavo.server.streams import Part, Streams

PING = named("ping")
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageReply:
    """Writes one answer."""

    def __init__(self, job: MessageJob, streams: Streams) -> None:
        self._job = job
        self._streams = streams
        self._id = f"msg_{secrets.token_hex(12)}"
        self._n_output = 0

    async def whole(self) -> bytes:
        """The answer's JSON."""
        pieces: list[Piece] = []
        end: dict[str, Any] = {}
        async with contextlib.aclosing(self._parts()) as parts:
            async for part in parts:
                pieces += self._read(part.chunk)
                if part.chunk.finish_reason is not None:
                    end = ending(part.chunk)
        return encoded(self._message(blocks(pieces)) | end | {"usage": self._usage()})

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer's events. The first one waits for a token: only then the usage is known."""
        written, begun = BlockEvents(), False
        async with contextlib.aclosing(self._parts()) as parts:
            async for part in parts:
                pieces = self._read(part.chunk)
                if not begun:
                    begun = True
                    message = self._message([]) | {"usage": self._usage()}
                    yield named("message_start", message=message)
                for piece in pieces:
                    for data in written.add(piece):
                        yield data
                if part.chunk.finish_reason is not None:
                    for data in written.end():
                        yield data
                    delta = ending(part.chunk)
                    yield named("message_delta", delta=delta, usage=self._usage())
        yield named("message_stop")

    def _parts(self) -> AsyncGenerator[Part, None]:
        return with_calls(self._streams.parts(), self._job.request)

    def _read(self, chunk: Chunk) -> list[Piece]:
        """What the chunk adds to the content."""
        self._n_output += len(chunk.token_ids)
        return [chunk.text, *chunk.tool_calls] if chunk.text else [*chunk.tool_calls]

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._job.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _usage(self) -> dict[str, Any]:
        stream = self._streams.first
        n_prompt = len(stream.prompt_token_ids)
        return usage_object(stream.receipt, prompt_tokens=n_prompt, output_tokens=self._n_output)


def ending(chunk: Chunk) -> dict[str, Any]:
    """Why the answer ended, and the caller's sequence if that was it."""
    sequence = chunk.stop_reason if isinstance(chunk.stop_reason, str) else None
    reason = STOP_REASONS.get(chunk.finish_reason or "", "end_turn")
    return {
        "stop_reason": reason if sequence is None else "stop_sequence",
        "stop_sequence": sequence,
    }
