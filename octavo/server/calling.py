"""Chunks on their way to an answer, with the tool calls in them made out. Knows no wire format."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from octavo.engine.tool_chunks import ToolChunks
from octavo.engine.types import GenerateRequest
from octavo.server.streams import Part


async def with_calls(
    parts: AsyncGenerator[Part, None], request: GenerateRequest
) -> AsyncGenerator[Part, None]:
    """`parts` of the answer to one request, each with text or one call."""
    chunks = ToolChunks.of(request)
    async with contextlib.aclosing(parts):
        async for part in parts:
            for chunk in chunks.read(part.chunk):
                yield Part(part.prompt, chunk)
