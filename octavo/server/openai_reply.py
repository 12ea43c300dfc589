"""From chunks to OpenAI's answers, whole or as events. Knows no HTTP and no engine."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from octavo.engine.types import Chunk, Usage
from octavo.server.logprobs import (
    Position,
    TokenBytes,
    chat_logprobs,
    completion_logprobs,
)
from octavo.server.openai import Job
from octavo.server.sse import event
from octavo.server.streams import Part

DONE = event(b"[DONE]")
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Shape(Protocol):
    """What differs between the two APIs."""

    prefix: str
    whole_object: str
    event_object: str

    def opening(self, index: int) -> dict[str, Any] | None: ...
    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]: ...
    def choice(self, index: int, tally: Tally) -> dict[str, Any]: ...


class ChatShape:
    """chat.completion and chat.completion.chunk."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def __init__(self, top_logprobs: int | None, token_bytes: TokenBytes) -> None:
        self._top = top_logprobs
        self._token_bytes = token_bytes

    def opening(self, index: int) -> dict[str, Any]:
        """The first event of a choice tells the role."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]:
        delta = {"content": chunk.text} if chunk.text else {}
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(chunk.logprobs),
            "finish_reason": chunk.finish_reason,
        }

    def choice(self, index: int, tally: Tally) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(tally.texts), "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(tally.logprobs),
            "finish_reason": tally.finish_reason,
        }

    def _logprobs(self, positions: tuple[Position, ...] | list[Position] | None) -> Any:
        if self._top is None or not positions:
            return None
        return chat_logprobs(positions, self._top, self._token_bytes)


class CompletionShape:
    """text_completion, whole and in events. Remembers each choice's length for the offsets."""

    prefix = "cmpl"
    whole_object = "text_completion"
    event_object = "text_completion"

    def __init__(self, top_logprobs: int | None, token_bytes: TokenBytes) -> None:
        self._top = top_logprobs
        self._token_bytes = token_bytes
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> None:
        del index

    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]:
        return self._entry(index, chunk.text, chunk.logprobs, chunk.finish_reason)

    def choice(self, index: int, tally: Tally) -> dict[str, Any]:
        return self._entry(index, "".join(tally.texts), tally.logprobs, tally.finish_reason)

    def _entry(
        self,
        index: int,
        text: str,
        positions: tuple[Position, ...] | list[Position] | None,
        finish_reason: str | None,
    ) -> dict[str, Any]:
        logprobs = None
        if self._top is not None and positions:
            start = self._offsets.get(index, 0)
            logprobs = completion_logprobs(positions, self._token_bytes, offset_chars=start)
            length = sum(len(token) for token in logprobs["tokens"])
            self._offsets[index] = start + length
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


class Tally:
    """One choice as it grows."""

    __slots__ = ("finish_reason", "logprobs", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[Position] = []
        self.finish_reason: str | None = None

    def add(self, chunk: Chunk) -> None:
        self.texts.append(chunk.text)
        self.logprobs.extend(chunk.logprobs or ())
        self.finish_reason = chunk.finish_reason or self.finish_reason


class Reply:
    """Writes one answer. The id is ours, whatever label the caller sent."""

    def __init__(self, job: Job, shape: Shape, *, fingerprint: str) -> None:
        self._job = job
        self._shape = shape
        self._head = {
            "id": f"{shape.prefix}-{secrets.token_hex(16)}",
            "created": int(time.time()),
            "model": job.model,
            "system_fingerprint": fingerprint,
        }
        # The same in every event, so it is encoded once.
        opened = encoded(self._head | {"object": shape.event_object})
        self._event_head = opened[:-1] + b',"choices":'
        self._usages: list[Usage] = []

    def _index(self, part: Part) -> int:
        """The choice's number in the answer: prompt by prompt, n choices each."""
        return part.prompt * self._job.n + part.chunk.choice

    async def whole(self, parts: AsyncGenerator[Part, None]) -> bytes:
        """The answer's JSON."""
        tallies = [Tally() for _ in range(len(self._job.requests) * self._job.n)]
        async for part in parts:
            tallies[self._index(part)].add(part.chunk)
            self._note(part.chunk)
        choices = [self._shape.choice(index, tally) for index, tally in enumerate(tallies)]
        return encoded(
            self._head
            | {
                "object": self._shape.whole_object,
                "choices": choices,
                "usage": usage_object(self._usages),
            }
        )

    async def events(self, parts: AsyncGenerator[Part, None]) -> AsyncGenerator[bytes, None]:
        """The answer's events, the last one `[DONE]`. Chunks that say nothing are left out."""
        opened: set[int] = set()
        async with contextlib.aclosing(parts):
            async for part in parts:
                chunk, index = part.chunk, self._index(part)
                self._note(chunk)
                opening = None if index in opened else self._shape.opening(index)
                opened.add(index)
                if opening is not None:
                    yield self._event([opening])
                if chunk.text or chunk.logprobs or chunk.finish_reason:
                    yield self._event([self._shape.delta(index, chunk)])
        if self._job.include_usage:
            yield self._event([], usage=usage_object(self._usages))
        yield DONE

    def _note(self, chunk: Chunk) -> None:
        if chunk.usage is not None:
            self._usages.append(chunk.usage)

    def _event(
        self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None
    ) -> bytes:
        tail = b"}"
        if self._job.include_usage:
            tail = b',"usage":' + encoded(usage) + b"}"
        return event(self._event_head + encoded(choices) + tail)


def usage_object(usages: list[Usage]) -> dict[str, Any]:
    """Tokens of all prompts together; `cached_tokens` is the cache read."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages)},
    }


def encoded(value: object) -> bytes:
    """Compact JSON in UTF-8."""
    return ENCODER.encode(value).encode("utf-8", "replace")
