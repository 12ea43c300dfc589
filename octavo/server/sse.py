"""An event stream as an ASGI response. Knows no wire format and no engine.

The status goes out with the first event: what fails before it is still an ordinary error answer.
At most one event waits here beside the transport's own buffer; a reader that stalls is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.core.errors import EngineClosed
from octavo.server.disconnect import while_connected
from octavo.server.errors import GOODBYE_SECONDS, SHUTTING_DOWN, ClientGone

log = logging.getLogger("octavo.server")

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
END = {"type": "http.response.body", "body": b"", "more_body": False}


def event(data: bytes) -> bytes:
    """One server-sent event. `data` is one line."""
    return b"data: " + data + b"\n\n"


class EventStream(Response):
    """Sends `events`, each a whole event.

    `failed` makes the last event of an exception raised after the first event went out.
    `closed` is awaited however it ends: there whatever produces the events is stopped.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        failed: Callable[[Exception], bytes],
        closed: Callable[[], Awaitable[None]],
        *,
        stall_seconds: float,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._failed = failed
        self._closed = closed
        self._stall_seconds = stall_seconds
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await while_connected(receive, self._send_all(send))
        except asyncio.CancelledError:
            await self._say_goodbye(send)
            raise
        finally:
            await self._closed()
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        """Every event, then the end of the body."""
        first = await anext(self._events)
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._write(send, first)
        try:
            async for data in self._events:
                await self._write(send, data)
        except ClientGone:
            raise
        except Exception as error:
            await self._write(send, self._failed(error))
        await send(END)

    async def _write(self, send: Send, data: bytes) -> None:
        """One event; waits while the transport's buffer is full. Raises ClientGone on a stall."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            log.warning("a reader took nothing for %g s and was cut off", self._stall_seconds)
            raise ClientGone from None

    async def _say_goodbye(self, send: Send) -> None:
        """The drain time is over: an answer that has begun ends with an error event."""
        if not self._started:
            return
        data = self._failed(EngineClosed(SHUTTING_DOWN))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await send({"type": "http.response.body", "body": data, "more_body": True})
                await send(END)
