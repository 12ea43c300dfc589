"""One accepted request with its deadlines. Knows its own ticket only, and no wire format."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, Self

from octavo.core.receipt import Receipt
from octavo.engine.types import Chunk
from octavo.server.contract import ChunkStream
from octavo.server.errors import HttpFault
from octavo.server.limits import ServerLimits


class Held(Protocol):
    """A place in the waiting room."""

    def answered(self) -> None: ...
    def close(self) -> None: ...


TooLate = Callable[[bool], HttpFault]
"""Makes the error of a request whose time is over: in the queue, or altogether."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Times of the event loop's clock: to have begun, and to have ended."""

    begin: float
    last: float

    @classmethod
    def of(cls, limits: ServerLimits, wanted_seconds: float | None, *, now: float) -> Self:
        """The server's bounds, and what the caller allows if that is less."""
        most = min(limits.request_seconds or math.inf, wanted_seconds or math.inf)
        return cls(now + limits.queue_seconds, now + most)

    @property
    def first(self) -> float:
        return min(self.begin, self.last)


class TimedStream:
    """The chunks of `stream`; raises what `too_late` makes of a deadline that has passed."""

    def __init__(
        self,
        stream: ChunkStream,
        ticket: Held,
        *,
        deadlines: Deadlines,
        too_late: TooLate,
    ) -> None:
        self._stream = stream
        self._ticket = ticket
        self._deadlines = deadlines
        self._too_late = too_late
        self._late: HttpFault | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

    @property
    def began(self) -> bool:
        return self._stream.began

    @property
    def prompt_token_ids(self) -> list[int]:
        return self._stream.prompt_token_ids

    @property
    def receipt(self) -> Receipt:
        return self._stream.receipt

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        loop = asyncio.get_running_loop()
        timers = [loop.call_at(self._deadlines.begin, self._check_begun)]
        if self._deadlines.last < math.inf:
            timers.append(loop.call_at(self._deadlines.last, self._expire, False))
        try:
            async for chunk in self._stream:
                if self._late is not None and chunk.finish_reason == "abort":
                    raise self._late
                self._ticket.answered()
                yield chunk
        finally:
            for timer in timers:
                timer.cancel()
            await self.cancel()

    async def cancel(self) -> None:
        """Abort what is left. Idempotent."""
        self._ticket.close()
        await self._stream.cancel()

    def _check_begun(self) -> None:
        if not self._stream.began:
            self._expire(True)

    def _expire(self, queued: bool) -> None:
        """Abort the request: its last chunk says so, and is told as being late."""
        if self._late is None:
            self._late = self._too_late(queued)
            task = asyncio.get_running_loop().create_task(self._stream.cancel())
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)
