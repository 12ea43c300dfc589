"""An engine without a model: it plays a script of chunks and records what was cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from octavo.core import Full, Group, KVCache, KVSpec, Scheduler
from octavo.core.errors import RequestError
from octavo.core.histogram import Histogram
from octavo.core.receipt import Receipt
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.stats import Cleared, EngineStats
from octavo.engine.stream import Watch
from octavo.engine.types import Chunk, GenerateRequest, TokenLogprob, Usage

MODEL = "fake-model"
HANG = "hang"  # a step that never ends, unless it is cancelled
QUEUED = "queued"  # the same, before the request has begun to run
Step = Chunk | Exception | float | str
Script = Callable[[GenerateRequest], Sequence[Step]]


@dataclass(frozen=True)
class FakeInfo:
    model: str = MODEL
    source: str = "fake"
    dtype: str = "float32"
    quantization: str | None = None
    kv_cache_dtype: str = "float32"
    prefix_caching: bool = True
    device: str = "cpu"
    backend: str = "fake"
    not_taken: tuple[str, ...] = ("fast: not built",)
    num_blocks: int = 100
    block_tokens: int = 16
    capacity_tokens: int = 1600
    bytes_per_token: int = 1024
    max_model_len: int = 512
    max_num_seqs: int = 8
    max_live_sequences: int = 12
    max_num_batched_tokens: int = 256
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    memory_note: str = "100 blocks of 16 KiB = 1.6 MiB"
    speculation_note: str = "off"


IDLE = EngineStats.of(
    Scheduler(KVCache(KVSpec((Group(Full(), (0,), 1, 1, "float32"),)), 100, step_tokens=256)),
    Histogram((1.0,)),
)


def usage(prompt: int = 5, completion: int = 2, cached: int = 4, written: int = 1) -> Usage:
    return Usage(prompt, completion, cached_tokens=cached, cache_write_tokens=written)


def hello(request: GenerateRequest) -> list[Step]:
    """ "Hello" in two tokens for every choice."""
    steps: list[Step] = []
    n = request.params.n
    for choice in range(n):
        last = usage(completion=2 * n) if choice == n - 1 else None
        steps.append(scored(request, Chunk(choice, "Hel", (72,))))
        steps.append(scored(request, Chunk(choice, "lo", (108,), finish_reason="stop", usage=last)))
    return steps


def scored(request: GenerateRequest, chunk: Chunk) -> Chunk:
    """The chunk with log-probabilities, if wanted; the chosen token is the second best."""
    count = request.params.logprobs
    if count is None:
        return chunk
    position = {chunk.token_ids[0]: TokenLogprob(-1.5, 2)}
    for rank, token in enumerate([33, chunk.token_ids[0], 34, 35], start=1):
        if rank <= count:
            position.setdefault(token, TokenLogprob(-rank + 0.5, rank))
    return Chunk(
        chunk.choice,
        chunk.text,
        chunk.token_ids,
        logprobs=(position,),
        finish_reason=chunk.finish_reason,
        usage=chunk.usage,
    )


class FakeStream:
    def __init__(
        self,
        steps: Sequence[Step],
        number: int,
        engine: FakeEngine,
        watch: Watch | None = None,
    ) -> None:
        self.prompt_token_ids = [1, 2, 3]
        self.receipt = engine.receipt
        self.finished = False
        self._steps = steps
        self._number = number
        self._engine = engine
        self._cancelled = asyncio.Event()
        self.began = False
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        for step in self._steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, str):
                self.began = step == HANG
                await self._cancelled.wait()
                yield Chunk(0, "", (), finish_reason="abort", usage=usage())
            else:
                self.began = True
                if self._watch is not None:
                    self._watch.take(step, self._engine.now())
                yield step
                self._engine.sent += 1
        self.finished = True

    async def cancel(self) -> None:
        if not self.finished:
            self._cancelled.set()
            self._engine.cancelled.add(self._number)


class FakeEngine:
    """`script` gives the steps of a request; `refusal` is raised by the next submit instead."""

    def __init__(self) -> None:
        self.info = FakeInfo()
        self.closed = False
        self.reset()

    def reset(self) -> None:
        self.script: Script = hello
        self.refusal: Exception | None = None
        self.refuse_from = 0
        self.requests: list[GenerateRequest] = []
        self.cancelled: set[int] = set()
        self.sent = 0
        self.receipt = Receipt(read=1, written_implicit=1, unkept=1)
        self.not_ready: str | None = None
        self.is_alive = True
        self.work: object = None

    async def submit(
        self,
        request: GenerateRequest,
        watch: Watch | None = None,
        *,
        admit: Callable[[int], None] | None = None,
    ) -> FakeStream:
        if self.refusal is not None and len(self.requests) >= self.refuse_from:
            raise self.refusal
        if request.prompt_token_ids and max(request.prompt_token_ids) >= 256:
            raise RequestError("token out of the vocabulary", param="prompt_token_ids")
        if admit is not None:
            admit(len(request.prompt_token_ids or "prompt"))
        self.requests.append(request)
        return FakeStream(self.script(request), len(self.requests) - 1, self, watch)

    async def tokenize(self, request: GenerateRequest) -> list[int]:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        return [1, 2, 3] if request.prompt is None else list(request.prompt.encode())

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        if any(token >= 256 for token in token_ids):
            raise RequestError("token out of the vocabulary", param="tokens")
        return bytes(token_ids).decode("utf-8", "replace")

    async def clear_cache(self) -> Cleared:
        if self.refusal is not None:
            raise self.refusal
        return Cleared(freed_blocks=7, held_blocks=2)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def now(self) -> float:
        return time.monotonic()

    def stats(self) -> EngineStats:
        return IDLE

    def ready(self) -> str | None:
        return self.not_ready

    def alive(self) -> bool:
        return self.is_alive

    def progress(self) -> object:
        return self.work

    def fail(self, reason: str) -> None:
        self.not_ready = reason
        self.is_alive = False

    async def close(self) -> None:
        self.closed = True
