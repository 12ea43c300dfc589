"""One accepted request as its reader sees it: an async iterator that can be cancelled.

Owns the hand-over between the engine's thread and the reader's loop; knows no steps and no tokens.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from octavo.core.receipt import Receipt
from octavo.engine.backlog import Backlog
from octavo.engine.session import Session
from octavo.engine.types import Chunk

log = logging.getLogger(__name__)


class Watch(Protocol):
    """Sees the chunks of one request as the engine made them, also those that nobody reads."""

    def take(self, chunk: Chunk, now: float) -> None:
        """Called on the stream's loop. `now`: the end of the step, on the engine's clock."""


class Stream:
    """The chunks of one request, in order. Leaving the iteration early aborts the request.

    What a slow reader has not taken is joined to one chunk per choice: nothing is lost.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        deliver: Callable[[Stream, Chunk], None],
        cancel: Callable[[Session], None],
        watch: Watch | None = None,
    ) -> None:
        """`deliver` takes a chunk on the engine thread, `cancel` aborts a session from any."""
        self.loop = loop
        self._deliver = deliver
        self._cancel = cancel
        self._watch = watch
        self._chunks = Backlog()
        self._session: Session | None = None
        self._abandoned = False
        self._lock = threading.Lock()  # guards the two above

    @property
    def prompt_token_ids(self) -> list[int]:
        assert self._session is not None
        return self._session.prepared.tokens

    @property
    def began(self) -> bool:
        """Whether it has left the queue: its first block table has been granted."""
        return self._session is not None and self._session.receipt.admitted_at is not None

    @property
    def receipt(self) -> Receipt:
        """The leading choice's. From the first chunk on its account of the prompt is final."""
        assert self._session is not None
        return self._session.receipt

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        try:
            while (chunk := await self._chunks.get()) is not None:
                yield chunk
        finally:
            await self.cancel()

    async def cancel(self) -> None:
        """Abort what is left. Idempotent."""
        self.abandon()

    def attach(self, session: Session) -> None:
        """Called by the thread that submitted. It may be late: nobody may want the answer now."""
        with self._lock:
            self._session = session
            abandoned = self._abandoned
        if abandoned:
            self._cancel(session)

    def abandon(self) -> None:
        """Nobody wants the answer any more. Called on any thread."""
        with self._lock:
            self._abandoned = True
            session = self._session
        if session is not None and not session.ended:
            self._cancel(session)

    def emit(self, chunk: Chunk) -> None:
        """Called on the engine thread."""
        self._deliver(self, chunk)

    def receive(self, chunks: list[Chunk], now: float) -> None:
        """Called on the stream's own loop. `now`: the end of the step that made them."""
        for chunk in chunks:
            self._chunks.put(chunk)
        if self._watch is None:
            return
        try:
            for chunk in chunks:
                self._watch.take(chunk, now)
        except Exception:  # the streams that come after this one in the step must get theirs
            log.exception("watching a request failed")
