"""Chunks that wait for their reader. Owns how they are joined; knows no engine and no threads.

A reader that keeps up sees one chunk per step and choice. For one that does not, what waits of a
choice grows into one chunk, so the memory is that of the tokens and not of thousands of chunks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from octavo.engine.types import Chunk, PromptLogprobs, TokenLogprob


class _Gathered:
    """What waits of one choice."""

    __slots__ = ("last", "logprobs", "prompt_logprobs", "texts", "token_ids")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[dict[int, TokenLogprob]] | None = None
        self.prompt_logprobs: PromptLogprobs | None = None
        self.last: Chunk | None = None

    def add(self, chunk: Chunk) -> None:
        if chunk.text:
            self.texts.append(chunk.text)
        self.token_ids.extend(chunk.token_ids)
        if chunk.logprobs is not None:
            self.logprobs = [] if self.logprobs is None else self.logprobs
            self.logprobs.extend(chunk.logprobs)
        if chunk.prompt_logprobs is not None:
            self.prompt_logprobs = chunk.prompt_logprobs
        self.last = chunk  # only a choice's last chunk says how it ended

    def chunk(self) -> Chunk:
        assert self.last is not None
        return replace(
            self.last,
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            prompt_logprobs=self.prompt_logprobs,
        )


class Backlog:
    """At most one chunk per choice, that of the longest silent choice first. For one event loop.

    The chunk with the request's usage comes out last, and after it the end.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Gathered] = {}
        self._ended = False
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, chunk: Chunk) -> None:
        if self._ended:
            return  # the engine was given up in the middle of a step, and that step came back
        gathered = self._waiting.pop(chunk.choice, None) or _Gathered()
        gathered.add(chunk)
        self._waiting[chunk.choice] = gathered  # last in order: it has just spoken
        self._ended = self._ended or chunk.usage is not None
        self._news.set()

    async def get(self) -> Chunk | None:
        """The next chunk, or None, now and ever after, once the last one has been taken."""
        while not self._waiting:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        choice = next(iter(self._waiting))
        return self._waiting.pop(choice).chunk()
