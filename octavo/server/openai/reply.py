"""From chunks to OpenAI's answers, whole or as events. Knows no HTTP and no engine."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from octavo.engine.types import Chunk, Usage
from octavo.server.openai.jobs import Job
from octavo.server.openai.shapes import Shape, Tally
from octavo.server.sse import encoded, event
from octavo.server.streams import Part

DONE = event(b"[DONE]")


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
        return encoded(
            self._head
            | {"object": self._shape.whole_object}
            | self._shape.head()
            | self._shape.answer(tallies)
            | {"usage": usage_object(self._usages)}
        )

    async def events(self, parts: AsyncGenerator[Part, None]) -> AsyncGenerator[bytes, None]:
        """The answer's events, the last one `[DONE]`. Chunks that say nothing are left out."""
        opened: set[int] = set()
        n_tokens = [0] * (len(self._job.requests) * self._job.n)
        head: dict[str, Any] | None = self._shape.head()
        async with contextlib.aclosing(parts):
            async for part in parts:
                chunk, index = part.chunk, self._index(part)
                self._note(chunk)
                opening = None if index in opened else self._shape.opening(index)
                opened.add(index)
                if opening is not None:
                    yield self._event([opening], self._so_far(part, n_tokens[index]), head)
                    head = None
                n_tokens[index] += len(chunk.token_ids)
                if self._shows(chunk):
                    usage = self._so_far(part, n_tokens[index])
                    yield self._event([self._shape.delta(index, chunk)], usage)
        if self._job.include_usage:
            yield self._event([], usage_object(self._usages))
        yield DONE

    def _note(self, chunk: Chunk) -> None:
        if chunk.usage is not None:
            self._usages.append(chunk.usage)

    def _shows(self, chunk: Chunk) -> bool:
        """Whether a chunk has anything to tell: one without text may still have tokens."""
        told = chunk.text or chunk.tool_calls or chunk.logprobs or chunk.finish_reason
        return bool(told or (self._job.return_token_ids and chunk.token_ids))

    def _so_far(self, part: Part, n_tokens: int) -> dict[str, Any] | None:
        """The tokens of a choice and its prompt until now, if every event is to tell them."""
        if not self._job.continuous_usage:
            return None
        n_prompt = len(self._shape.prompts[part.prompt])
        return token_counts(n_prompt, n_tokens)

    def _event(
        self,
        choices: list[dict[str, Any]],
        usage: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
    ) -> bytes:
        tail = b"}"
        if self._job.include_usage:
            tail = b',"usage":' + encoded(usage) + b"}"
        if head:
            tail = b"," + encoded(head)[1:-1] + tail
        return event(self._event_head + encoded(choices) + tail)


def token_counts(prompt: int, completion: int) -> dict[str, Any]:
    """The three counts that every usage object has."""
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def usage_object(usages: list[Usage]) -> dict[str, Any]:
    """Tokens of all prompts together; read, written and neither are the prompt's three parts."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    details = {
        "cached_tokens": sum(usage.cached_tokens for usage in usages),
        "cache_write_tokens": sum(usage.cache_write_tokens for usage in usages),
    }
    return token_counts(prompt, completion) | {"prompt_tokens_details": details}
