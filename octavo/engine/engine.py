"""The engine: sessions in, chunks out, one step at a time. The same for scripts and for the server.

`prepare` and `submit` may be called from any thread; `step` only from the one that owns the engine.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from octavo.core import keys
from octavo.core.batch import Delta
from octavo.core.cache import KVCache
from octavo.core.errors import EngineClosed, NeverFits, Overloaded, RequestError, Unsupported
from octavo.core.histogram import Histogram
from octavo.core.loop import Loop
from octavo.core.request import Finish, Request
from octavo.core.sampling import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.engine.beam_bounds import check_width
from octavo.engine.prepare import Prepared, Preparer
from octavo.engine.session import Emit, Session
from octavo.engine.stats import Cleared, EngineStats
from octavo.engine.tokenizer import Tokenizer
from octavo.engine.types import Chunk, GenerateRequest
from octavo.engine.validate import check_choices, check_prompt_ids

log = logging.getLogger(__name__)

STEP_BOUNDS = (1.0, *(float(1 << power) for power in range(3, 15)))  # tokens; vLLM's edges
TEXT_FAILED = "turning this request's tokens into text failed inside the engine"


class Engine:
    """`namespace` names weights and numerics for the block keys; None switches the cache off."""

    def __init__(
        self,
        loop: Loop,
        *,
        preparer: Preparer,
        tokenizer: Tokenizer | None,
        namespace: bytes | None,
        max_live: int,
    ) -> None:
        self._loop = loop
        self._preparer = preparer
        self.tokenizer = tokenizer
        self._namespace = namespace
        self.max_live = max_live
        self._sessions: dict[str, Session] = {}
        self._ids = itertools.count()
        self._live = 0  # places of choices and beams: reserved, or accepted and not ended
        self._closed: str | None = None
        self._lock = threading.Lock()  # guards the sessions, the count and the end
        self._step_tokens = Histogram(STEP_BOUNDS)
        self._stats = EngineStats.of(self.scheduler, self._step_tokens)

    @property
    def scheduler(self) -> Scheduler:
        return self._loop.scheduler

    @property
    def cache(self) -> KVCache:
        return self.scheduler.cache

    @property
    def busy(self) -> bool:
        return self._loop.busy

    def now(self) -> float:
        """The clock of steps and receipts, in seconds."""
        return self._loop.now()

    @property
    def room(self) -> int:
        """Choices and beams that may still be submitted before the queue is full."""
        return self.max_live - self._live

    def prepare(self, request: GenerateRequest) -> Prepared:
        """Validate and tokenise. Raises RequestError, also for what could not even run alone."""
        self.places(request.params)
        prepared = self._preparer.prepare(request)
        n_prompt = len(prepared.tokens)
        refusal = self.scheduler.would_refuse(n_prompt, prepared.limits.max_tokens)
        if refusal is not None:
            raise NeverFits(
                f"the prompt of {n_prompt} tokens can never run here: it {refusal}; shorten "
                "it, or start the engine with more num_blocks (without chunked prefill, also with "
                "a larger max_num_batched_tokens)",
                param="prompt",
            )
        if not request.clamp_max_tokens:
            self._check_room(prepared)
        return prepared

    def _check_room(self, prepared: Prepared) -> None:
        """Raises RequestError if more tokens are asked for than could follow the prompt."""
        n_prompt, asked = len(prepared.tokens), prepared.params.max_tokens
        room = min(prepared.limits.max_tokens, self.scheduler.longest - n_prompt)
        if asked is not None and asked > room:
            raise RequestError(
                f"max_tokens {asked} is more than the {room} that fit behind the prompt of "
                f"{n_prompt} tokens; ask for fewer or shorten the prompt",
                param="max_tokens",
                code="context_length_exceeded",
            )

    def tokenize(self, request: GenerateRequest) -> list[int]:
        """The prompt's token ids as `prepare` makes them, of any length. From any thread."""
        return self._preparer.tokens(request)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens spelled out. Raises RequestError."""
        if self.tokenizer is None:
            raise Unsupported("this engine runs without a tokenizer (skip_tokenizer_init)")
        check_prompt_ids(token_ids, vocab_size=self.tokenizer.vocab_size, name="tokens")
        return self.tokenizer.decode(token_ids, skip_special=False)

    def places(self, params: SamplingParams | None) -> int:
        """How many places a request needs: one for each choice, in a search one for each beam.

        Raises RequestError if they can never be there.
        """
        if params is None:
            return 1
        n, width = check_choices(params), check_width(params)
        if max(n, width) > self.max_live:
            name = "n" if n > self.max_live else "beam_width"
            raise RequestError(
                f"{name} {max(n, width)} is more than the {self.max_live} requests that this "
                "engine lets run and wait; ask for fewer",
                param=name,
            )
        return max(n, width)

    def reserve(self, params: SamplingParams | None) -> int:
        """Take places in the queue before any work is spent on a request. Returns how many.

        Raises Overloaded when too many run and wait, EngineClosed after `refuse`.
        """
        n = self.places(params)
        with self._lock:
            self._check_open()
            if self._live + n > self.max_live:
                raise Overloaded(
                    f"{self._live} of {self.max_live} places are taken and {n} are wanted; "
                    "try again later"
                )
            self._live += n
        return n

    def release(self, places: int) -> None:
        """Give back what `reserve` took for a request that did not enter."""
        with self._lock:
            self._live -= places

    def enter(
        self, prepared: Prepared, emit: Emit, *, admit: Callable[[int], None] | None = None
    ) -> Session:
        """Accept a request whose places are reserved, or raise EngineClosed and leave them so.

        `admit` is given the prompt tokens that the cache lacks, and may raise to refuse.
        """
        session = self._session(prepared, emit)
        if admit is not None:
            admit(self.cache.uncached_tokens(session.requests[0]))
        with self._lock:
            self._check_open()
            self._sessions[session.id] = session
            self._loop.submit(lambda scheduler, now: self._enter(session, scheduler, now))
        return session

    def submit(self, prepared: Prepared, emit: Emit) -> Session:
        """`reserve` and `enter` in one."""
        places = self.reserve(prepared.params)
        try:
            return self.enter(prepared, emit)
        except BaseException:
            self.release(places)
            raise

    def _check_open(self) -> None:
        if self._closed is not None:
            raise EngineClosed(self._closed)

    def refuse(self, reason: str) -> None:
        """Let nothing in any more. What `submit` accepted before is in `sessions` from here on."""
        with self._lock:
            self._closed = self._closed or reason

    def _session(self, prepared: Prepared, emit: Emit) -> Session:
        root = None
        spare = self.places(prepared.params) - prepared.params.n
        if self._namespace is not None:
            root = keys.root(self._namespace, salt=prepared.salt.encode())
        session = Session(
            f"req-{next(self._ids)}",
            prepared,
            tokenizer=self.tokenizer,
            root=root,
            block_tokens=self.cache.block_tokens,
            emit=lambda chunk: self._pass_on(chunk, emit, spare=spare),
        )
        if prepared.beams is not None:
            session.search(prepared.beams)
        return session

    def _pass_on(self, chunk: Chunk, emit: Emit, *, spare: int) -> None:
        """Every choice ends with exactly one chunk that says so: here it leaves the count.

        `spare` places, those of beams that are no choices, leave it with the last one.
        """
        if chunk.finish_reason is not None:
            with self._lock:
                self._live -= 1 if chunk.usage is None else 1 + spare
        emit(chunk)

    def _enter(self, session: Session, scheduler: Scheduler, now: float) -> None:
        for request in session.requests:
            if request.beams is not None and request is not request.beams.leader:
                continue
            refusal = scheduler.add(request, now)
            assert refusal is None, "what was accepted is refused"

    def cancel(self, session: Session) -> None:
        """Abort what is left of a session; its blocks are free before the next step. Idempotent."""
        self._loop.submit(lambda scheduler, now: self._abort(session, scheduler, now))

    def _abort(self, session: Session, scheduler: Scheduler, now: float) -> None:
        for request in session.requests:
            scheduler.end(request, Finish.ABORT, now)
            # A step that was cut short may have ended a request without anybody hearing of it.
            finish = request.finish or Finish.ABORT
            self._tell(session, request, partial(session.end, request, finish))
        self._forget(session)

    def step(self) -> None:
        """Run one step and emit what it brought."""
        for delta in self._loop.step():
            self._deliver(delta)
        computed = self.scheduler.totals.computed_tokens - self._stats.computed_tokens
        if computed:
            self._step_tokens.add(computed)
        self._stats = EngineStats.of(self.scheduler, self._step_tokens)

    def _deliver(self, delta: Delta) -> None:
        session = self._sessions[delta.request.owner]
        if delta.request.beams is None:
            self._tell(session, delta.request, partial(self._take, session, delta))
        else:
            self._deliver_answers(session, delta)
        self._forget(session)

    def _deliver_answers(self, session: Session, delta: Delta) -> None:
        """A beam search is over: its answers, or its error for each of them."""
        if delta.finish is Finish.ERROR:
            for request in session.requests:
                end = partial(session.end, request, Finish.ERROR, error=str(delta.scores))
                self._tell(session, request, end)
            return
        for request, found in zip(session.requests, delta.scores, strict=True):
            self._tell(session, request, partial(session.take_answer, request, found))

    def _take(self, session: Session, delta: Delta) -> None:
        request = delta.request
        if delta.finish is Finish.ERROR:
            session.end(request, Finish.ERROR, error=str(delta.scores))
        elif session.take(request, delta.tokens, scores=delta.scores, finish=delta.finish):
            self.scheduler.end(request, Finish.STOP, self._loop.now())
            session.end(request, Finish.STOP)

    def _tell(self, session: Session, request: Request, action: Callable[[], None]) -> None:
        """Do `action`. If it raises, that ends this one request; all others go on."""
        try:
            action()
        except Exception:
            log.exception("request %s failed on its way to text", request.id)
            self.scheduler.end(request, Finish.ERROR, self._loop.now())
            try:
                session.end(request, Finish.ERROR, error=TEXT_FAILED)
            except Exception:
                log.exception("whoever asked for request %s could not be told", request.id)

    def _forget(self, session: Session) -> None:
        if session.ended:
            with self._lock:
                self._sessions.pop(session.id, None)

    def abort_all(self) -> None:
        """End every session, before the next step."""
        for session in self.sessions():
            self.cancel(session)

    def sessions(self) -> Sequence[Session]:
        """Accepted and not ended. Safe from any thread."""
        with self._lock:
            return list(self._sessions.values())

    def clear_cache(self, told: Callable[[Cleared], None] | None = None) -> None:
        """Forget every cached prefix, before the next step.

        `told` is called at once afterwards, on the stepping thread.
        """

        def clear(scheduler: Scheduler, now: float) -> None:
            del now
            pool = scheduler.cache.pool
            idle_blocks = pool.cached
            scheduler.clear_cache()
            if told is not None:
                held_blocks = pool.total - pool.free - pool.cached
                told(Cleared(freed_blocks=idle_blocks, held_blocks=held_blocks))

        self._loop.submit(clear)

    def stats(self) -> EngineStats:
        """As of the end of the last step, so that the numbers fit together. From any thread."""
        return self._stats
