"""The engine on a thread of its own, for asyncio. Owns the thread, its wake-ups and its end.

The loop's thread only enqueues: a few threads of its own prepare requests, one engine thread steps.
Chunks cross back once per step and loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from octavo.compute.progress import Progress
from octavo.core.config import EngineConfig
from octavo.core.errors import EngineClosed
from octavo.engine.build import Built, build
from octavo.engine.info import EngineInfo
from octavo.engine.session import Session
from octavo.engine.stats import Cleared, EngineStats
from octavo.engine.stream import Stream, Watch
from octavo.engine.types import Chunk, GenerateRequest

log = logging.getLogger(__name__)

Admit = Callable[[int], None]
Result = TypeVar("Result")

JOIN_SECONDS = 30.0
ALIVE_SECONDS = 1.0  # how often to look whether the engine thread still runs
DEAD_JOIN_SECONDS = 1.0  # a thread that hangs is not waited for
PREPARING_THREADS = 4
CLOSING = "the engine is shutting down"


class AsyncEngine:
    def __init__(self, built: Built) -> None:
        self._engine = built.engine
        self.info: EngineInfo = built.info
        self._wake = threading.Condition()
        self._closing = False
        self._death: str | None = None
        self._outbox: dict[Stream, list[Chunk]] = {}
        # Its queue is bounded by the places that `submit` reserves.
        self._preparing = ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="octavo-prepare")
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

    async def submit(
        self,
        request: GenerateRequest,
        watch: Watch | None = None,
        *,
        admit: Admit | None = None,
    ) -> Stream:
        """Count the request in, validate and tokenise off the loop, then enqueue.

        `admit` is called on another thread, with the prompt tokens that the cache lacks. Raises
        RequestError for what is wrong with the request, Overloaded, which costs no tokenising,
        EngineClosed, or what `admit` raises.
        """
        loop = asyncio.get_running_loop()
        stream = Stream(loop, deliver=self._put_out, cancel=self.cancel, watch=watch)
        try:
            await asyncio.wrap_future(self._start(request, stream, admit))
        except BaseException:
            stream.abandon()  # a cancelled wait does not stop the thread that submits
            raise
        return stream

    def _start(self, request: GenerateRequest, stream: Stream, admit: Admit | None) -> Future[None]:
        """Have the request prepared and entered. Its places are given back unless it enters."""

        def settle(done: Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._engine.release(places)

        with self._wake:  # `close` waits for it: no request goes to threads that have been ended
            self._check_open()
            places = self._engine.reserve(request.params)
            future = self._preparing.submit(self._submit, request, stream, admit)
        future.add_done_callback(settle)
        return future

    def _submit(self, request: GenerateRequest, stream: Stream, admit: Admit | None) -> None:
        self._check_open()
        prepared = self._engine.prepare(request)
        stream.attach(self._engine.enter(prepared, stream.emit, admit=admit))
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

    def now(self) -> float:
        """The clock of receipts, in seconds."""
        return self._engine.now()

    async def tokenize(self, request: GenerateRequest) -> list[int]:
        """The request's prompt as token ids, made off the loop. It takes a place meanwhile.

        Raises RequestError, Overloaded or EngineClosed.
        """
        return await self._off_loop(lambda: self._engine.tokenize(request))

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens spelled out. As `tokenize` otherwise."""
        return await self._off_loop(lambda: self._engine.detokenize(token_ids))

    async def _off_loop(self, work: Callable[[], Result]) -> Result:
        """`work` on a preparing thread, whose queue is bounded by the places it takes."""
        with self._wake:
            self._check_open()
            places = self._engine.reserve(None)
            future = self._preparing.submit(work)
        future.add_done_callback(lambda _: self._engine.release(places))
        return await asyncio.wrap_future(future)

    async def clear_cache(self) -> Cleared:
        """Forget every cached prefix, between two steps. Raises EngineClosed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Cleared] = loop.create_future()

        def settle(cleared: Cleared) -> None:
            if not done.done():
                done.set_result(cleared)

        def told(cleared: Cleared) -> None:
            with contextlib.suppress(RuntimeError):  # that loop has ended: nobody waits any more
                loop.call_soon_threadsafe(settle, cleared)

        self._check_open()
        self._engine.clear_cache(told)
        self._notify()
        while not done.done():
            await asyncio.wait({done}, timeout=ALIVE_SECONDS)
            if not self.alive() and not done.done():
                raise EngineClosed(self._death or CLOSING)
        return done.result()

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

    def progress(self) -> tuple[int, ...] | None:
        """None without work, else numbers of which one changes whenever the work gets on."""
        if not self._engine.sessions():
            return None
        stats = self._engine.stats()
        return (stats.computed_tokens, stats.sequences, stats.running, stats.waiting)

    def fail(self, reason: str) -> None:
        """Answer every request with an error and take no more: the engine does not get on.

        For another thread, while the engine's own hangs in a step.
        """
        self._die(reason)

    async def close(self) -> None:
        """Abort what runs and end the thread. Idempotent."""
        with self._wake:
            self._closing = True
            self._engine.refuse(CLOSING)
            self._wake.notify()
        self._preparing.shutdown(wait=False)
        patience = JOIN_SECONDS if self._death is None else DEAD_JOIN_SECONDS
        await asyncio.to_thread(self._thread.join, patience)

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
                if self._death is not None:
                    return  # given up in the middle of the step: everybody has been told
                self._flush()
            if self._death is not None:
                return
            self._engine.abort_all()
            self._engine.step()
            self._flush()
        except Exception:
            log.exception("the engine thread died")
            self._die("the engine has failed and must be restarted")

    def _wait(self) -> bool:
        """Sleep until there is work. False: time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._ending or self._engine.busy)
            return not self._ending

    @property
    def _ending(self) -> bool:
        return self._closing or self._death is not None

    def _put_out(self, stream: Stream, chunk: Chunk) -> None:
        self._outbox.setdefault(stream, []).append(chunk)

    def _flush(self) -> None:
        """Hand each stream its chunks of this step, with one wake-up per stream's loop."""
        outbox, self._outbox = self._outbox, {}
        now = self._engine.now()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Stream, list[Chunk]]]] = {}
        for stream, chunks in outbox.items():
            by_loop.setdefault(stream.loop, []).append((stream, chunks))
        for loop, batch in by_loop.items():
            try:
                loop.call_soon_threadsafe(_hand_over, batch, now)
            except RuntimeError:  # that loop has ended, and its streams with it
                for stream, _ in batch:
                    stream.abandon()

    def _die(self, reason: str) -> None:
        with self._wake:
            if self._death is not None:
                return
            self._death = reason
            self._wake.notify()
        self._engine.refuse(reason)
        for session in self._engine.sessions():
            try:
                session.fail(reason)
            except Exception:
                log.exception("session %s could not be told", session.id)
        self._flush()


def _hand_over(batch: list[tuple[Stream, list[Chunk]]], now: float) -> None:
    for stream, chunks in batch:
        stream.receive(chunks, now)
