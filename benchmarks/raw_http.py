"""A client that costs next to nothing: one HTTP request per connection over bare asyncio streams.

For loopback only. Knows just enough HTTP for this server's answers; counts no times itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
LINE_BYTES = 1 << 22


class Exchange:
    """`async with Exchange(port, path, body) as answer`: status, then `events()` or `body()`."""

    def __init__(
        self, port: int, path: str, body: object, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self._port = port
        payload = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            f"host: {HOST}:{port}",
            "content-type: application/json",
            f"content-length: {len(payload)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        self._request = "\r\n".join([*lines, "", ""]).encode() + payload
        self.status = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            HOST, self._port, limit=LINE_BYTES
        )
        try:
            self._writer.write(self._request)
            head = await self._reader.readuntil(b"\r\n\r\n")
        except BaseException:
            self.cut()
            raise
        self.status = int(head.split(b" ", 2)[1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
        self.cut()

    def cut(self) -> None:
        """Close the connection at once, whatever still comes."""
        self._writer.transport.abort()

    async def events(self) -> AsyncIterator[bytes]:
        """The data of each event. The sizes of chunks stand on lines of their own."""
        async for line in self._reader:
            if line.startswith(b"data: "):
                yield line[6:-1]

    async def body(self) -> Any:
        """A whole answer's JSON."""
        return json.loads(await self._reader.read())


async def texts(answer: Exchange) -> AsyncIterator[str]:
    """The text of each event of a completion; ends with [DONE]. Raises ValueError on an error."""
    async for data in answer.events():
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise ValueError(event["error"]["code"])
        for choice in event["choices"]:
            yield choice["text"]
    raise ValueError("the stream ended without [DONE]")
