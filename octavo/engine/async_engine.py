"""The engine on a thread of its own, for asyncio. Owns the thread, its wake-ups and its end.

The loop's thread only enqueues; one engine thread steps. Chunks cross back once per step and loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

from octavo.compute.progress import Progress
from octavo.core.config import EngineConfig
from octavo.core.errors import EngineClosed
from octavo.engine.build import Built, EngineInfo, build
from octavo.engine.session import Session
from octavo.engine.stats import EngineStats
from octavo.engine.types import Chunk, GenerateRequest

log = logging.getLogger(__name__)

JOIN_SECONDS = 30.0
CLOSING = "the engine is shutting down"


class Stream:
    """The chunks of one request, in order. Leaving the iteration early aborts the request."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._engine = engine
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        self._session: Session | None = None
        self._abandoned = False
        self._lock = threading.Lock()  # guards the two above

    @property
    def prompt_token_ids(self) -> list[int]:
        assert self._session is not None
        return self._session.prepared.tokens

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        try:
            while (chunk := await self._chunks.get()) is not None:
                yield chunk
            self._chunks.put_nowait(None)  # whoever iterates again finds the end, and does not hang
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
            self._engine.cancel(session)

    def abandon(self) -> None:
        """Nobody wants the answer any more. Called on any thread."""
        with self._lock:
            self._abandoned = True
            session = self._session
        if session is not None and not session.ended:
            self._engine.cancel(session)

    def emit(self, chunk: Chunk) -> None:
        """Called on the engine thread."""
        self._engine.deliver(self, chunk)

    def receive(self, chunks: list[Chunk]) -> None:
        """Called on the stream's own loop. The last chunk of a request carries its usage."""
        for chunk in chunks:
            self._chunks.put_nowait(chunk)
            if chunk.usage is not None:
                self._chunks.put_nowait(None)


class AsyncEngine:
    def __init__(self, built: Built) -> None:
        self._engine = built.engine
        self.info: EngineInfo = built.info
        self._wake = threading.Condition()
        self._closing = False
        self._death: str | None = None
        self._outbox: dict[Stream, list[Chunk]] = {}
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_config(cls, config: EngineConfig, *, progress: Progress | None = None) -> AsyncEngine:
        """Load the model, then start. Blocks for as long as loading takes."""
        return cls(build(config, progress=progress))

    @classmethod
    def load(cls, model: str = "smollm2", **options: Any) -> AsyncEngine:
        """As `LLM(model, **options)`."""
        return cls.from_config(EngineConfig.of(model, **options))

    # -- on the event loop ------------------------------------------------------------------------

    async def submit(self, request: GenerateRequest) -> Stream:
        """Validate and tokenise off the loop, then enqueue.

        Raises RequestError for what is wrong with the request, Overloaded, or EngineClosed.
        """
        self._check_open()
        stream = Stream(self, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(self._submit, request, stream)
        except BaseException:
            stream.abandon()  # a cancelled wait does not stop the thread that submits
            raise
        return stream

    def _submit(self, request: GenerateRequest, stream: Stream) -> None:
        session = self._engine.submit(self._engine.prepare(request), stream.emit)
        stream.attach(session)
        self._notify()

    def cancel(self, session: Session) -> None:
        """Abort a session from any thread. One that has ended stays as it is."""
        self._engine.cancel(session)
        self._notify()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes a token stands for; empty without a tokenizer."""
        tokenizer = self._engine.tokenizer
        return b"" if tokenizer is None else tokenizer.token_bytes(token_id)

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def alive(self) -> bool:
        """Whether the engine thread runs and nothing has killed it."""
        return self._death is None and self._thread.is_alive()

    def ready(self) -> str | None:
        """None, or why no request is taken now."""
        if self._death is not None:
            return self._death
        if self._closing:
            return CLOSING
        if self._engine.room <= 0:
            return "the queue is full"
        return None

    async def close(self) -> None:
        """Abort what runs and end the thread. Idempotent."""
        with self._wake:
            self._closing = True
            self._engine.refuse(CLOSING)
            self._wake.notify()
        await asyncio.to_thread(self._thread.join, JOIN_SECONDS)

    def _check_open(self) -> None:
        if self._death is not None:
            raise EngineClosed(self._death)
        if self._closing:
            raise EngineClosed(CLOSING)

    # -- on the engine thread ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._engine.step()
                self._flush()
            self._engine.abort_all()
            self._engine.step()
            self._flush()
        except Exception:
            log.exception("the engine thread died")
            self._die("the engine has failed and must be restarted")

    def _wait(self) -> bool:
        """Sleep until there is work. False: time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._engine.busy)
            return not self._closing

    def deliver(self, stream: Stream, chunk: Chunk) -> None:
        self._outbox.setdefault(stream, []).append(chunk)

    def _flush(self) -> None:
        """Hand each stream its chunks of this step, with one wake-up per stream's loop."""
        outbox, self._outbox = self._outbox, {}
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Stream, list[Chunk]]]] = {}
        for stream, chunks in outbox.items():
            by_loop.setdefault(stream.loop, []).append((stream, chunks))
        for loop, batch in by_loop.items():
            try:
                loop.call_soon_threadsafe(_hand_over, batch)
            except RuntimeError:  # that loop has ended, and its streams with it
                for stream, _ in batch:
                    stream.abandon()

    def _die(self, reason: str) -> None:
        self._death = reason
        self._engine.refuse(reason)
        for session in self._engine.sessions():
            session.fail(reason)
        self._flush()


def _hand_over(batch: list[tuple[Stream, list[Chunk]]]) -> None:
    for stream, chunks in batch:
        stream.receive(chunks)
