"""Several engine streams as one: the prompts of a completions request. Knows no wire format."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from octavo.core.errors import EngineClosed, EngineError
from octavo.engine.types import Chunk, GenerateRequest
from octavo.server.contract import ChunkStream, ServedEngine
from octavo.server.telemetry.record import current

QUEUED_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk and which prompt it belongs to."""

    prompt: int
    chunk: Chunk


class Streams:
    """Accepted requests, in the order of their prompts. Iterate once, cancel always."""

    def __init__(self, streams: Sequence[ChunkStream]) -> None:
        self._streams = tuple(streams)

    @classmethod
    async def open(cls, engine: ServedEngine, requests: Sequence[GenerateRequest]) -> Streams:
        """Submit all or none: one refusal cancels those already accepted."""
        accepted: list[ChunkStream] = []
        try:
            for request in requests:
                stream = await _submit(engine, request)
                accepted.append(stream)
        except BaseException:
            await cls(accepted).cancel()
            raise
        return cls(accepted)

    @property
    def prompts(self) -> list[list[int]]:
        """Token ids of the prompts, in their order."""
        return [stream.prompt_token_ids for stream in self._streams]

    @property
    def first(self) -> ChunkStream:
        """The first prompt's, for who asked with one only."""
        return self._streams[0]

    async def cancel(self) -> None:
        """Cancel every stream, also after one of them failed to."""
        await asyncio.gather(*(stream.cancel() for stream in self._streams), return_exceptions=True)

    async def parts(self) -> AsyncGenerator[Part, None]:
        """All chunks as they come. Raises EngineError when one ends in an error or is aborted."""
        if len(self._streams) == 1:
            async for chunk in self._streams[0]:
                yield Part(0, checked(chunk))
            return
        async with contextlib.aclosing(self._merged()) as merged:
            async for part in merged:
                yield part

    async def _merged(self) -> AsyncGenerator[Part, None]:
        """Chunks of all streams through one bounded queue.

        A full one holds the pumps back; what then waits in a stream grows by its tokens only, for
        a stream joins what has not been taken.
        """
        queue: asyncio.Queue[Part | Exception | None] = asyncio.Queue(QUEUED_CHUNKS)
        pumps = [
            asyncio.create_task(pump(number, stream, queue))
            for number, stream in enumerate(self._streams)
        ]
        try:
            running = len(pumps)
            while running:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _submit(engine: ServedEngine, request: GenerateRequest) -> ChunkStream:
    """Submit a request, watched for the record of the HTTP request that it is part of."""
    record = current.get()
    watch = None if record is None else record.watch(request)
    stream = await engine.submit(request, watch)
    if watch is not None:
        watch.accepted(len(stream.prompt_token_ids))
    return stream


async def pump(
    number: int, stream: ChunkStream, queue: asyncio.Queue[Part | Exception | None]
) -> None:
    """Feed one stream into the queue; None marks its end, an exception its failure."""
    try:
        async for chunk in stream:
            await queue.put(Part(number, checked(chunk)))
        await queue.put(None)
    except Exception as error:
        await queue.put(error)


def checked(chunk: Chunk) -> Chunk:
    """A chunk that is an answer. Raises EngineError for one that reports a failure."""
    if chunk.finish_reason == "error":
        raise EngineError(chunk.error or "The engine failed on this request.")
    if chunk.finish_reason == "abort":
        raise EngineClosed("The request was aborted before it was finished.")
    return chunk
