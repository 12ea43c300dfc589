"""What the server needs of an engine. Owns no behaviour; knows neither torch nor the scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from octavo.core.receipt import Receipt
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.stats import Cleared, EngineStats
from octavo.engine.stream import Watch
from octavo.engine.types import Chunk, GenerateRequest


class ServedModel(Protocol):
    """The part of the engine's description that requests are checked against. Sizes in tokens.

    `max_live_sequences`: choices and beams that it lets run and wait, all requests together.
    `defaults`: the sampling of requests that do not set it.
    """

    @property
    def model(self) -> str: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_tokens(self) -> int: ...
    @property
    def capacity_tokens(self) -> int: ...
    @property
    def bytes_per_token(self) -> int: ...
    @property
    def prefix_caching(self) -> bool: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_live_sequences(self) -> int: ...
    @property
    def defaults(self) -> GenerationDefaults: ...


Admit = Callable[[int], None]
"""Called with the prompt tokens that the cache lacks, before a request enters; raises to refuse."""


class ChunkStream(Protocol):
    """One accepted request. Iterating yields chunks in order; `cancel` may be called twice.

    Chunks that are not taken are joined: they wait as one chunk per choice. `began`: whether it
    has left the queue. The receipt's account of the prompt is final from the first chunk on.
    """

    @property
    def began(self) -> bool: ...
    @property
    def prompt_token_ids(self) -> list[int]: ...
    @property
    def receipt(self) -> Receipt: ...
    def __aiter__(self) -> AsyncIterator[Chunk]: ...
    async def cancel(self) -> None: ...


class ServedEngine(Protocol):
    """`submit` validates and enqueues, `tokenize` only makes the prompt's tokens.

    `ready` is None or the reason why not. `tokenize` and `detokenize` raise what `submit` does, and
    wait in the same bounded queue. `watch` sees every chunk of the request when it is made. `now`
    is the clock of receipts, in seconds; `stats` is a snapshot that costs the engine's thread
    nothing.
    """

    @property
    def info(self) -> ServedModel: ...
    async def submit(self, request: GenerateRequest, watch: Watch | None = None) -> ChunkStream: ...
    def now(self) -> float: ...
    def stats(self) -> EngineStats: ...
    async def tokenize(self, request: GenerateRequest) -> list[int]: ...
    async def detokenize(self, token_ids: Sequence[int]) -> str: ...
    async def clear_cache(self) -> Cleared: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def ready(self) -> str | None: ...
    def alive(self) -> bool: ...
    async def close(self) -> None: ...


class HeldEngine(ServedEngine, Protocol):
    """An engine that lets the server decide what enters, and see that it gets on.

    `progress` is None without work, else a value that changes whenever the work gets on. `fail`
    ends every request with `reason`; the engine takes none after it.
    """

    async def submit(
        self,
        request: GenerateRequest,
        watch: Watch | None = None,
        *,
        admit: Admit | None = None,
    ) -> ChunkStream: ...
    def progress(self) -> object: ...
    def fail(self, reason: str) -> None: ...
