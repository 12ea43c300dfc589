"""What the server needs of an engine. Owns no behaviour; knows neither torch nor the scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from octavo.engine.generation_defaults import GenerationDefaults
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
    has left the queue.
    """

    @property
    def began(self) -> bool: ...

    @property
    def prompt_token_ids(self) -> list[int]: ...
    def __aiter__(self) -> AsyncIterator[Chunk]: ...
    async def cancel(self) -> None: ...


class ServedEngine(Protocol):
    """`submit` validates and enqueues; `ready` is None or the reason why not."""

    @property
    def info(self) -> ServedModel: ...
    async def submit(self, request: GenerateRequest) -> ChunkStream: ...
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
        self, request: GenerateRequest, *, admit: Admit | None = None
    ) -> ChunkStream: ...
    def progress(self) -> object: ...
    def fail(self, reason: str) -> None: ...
