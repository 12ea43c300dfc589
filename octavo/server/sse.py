"""An event stream as an ASGI response. Knows no wire format and no engine.

The status goes out with the first event: what fails before it is still an ordinary error answer.
At most one event waits here beside the transport's own buffer; a reader that stalls is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.core.errors import EngineClosed
from octavo.server.disconnect import while_connected
from octavo.server.errors import GOODBYE_SECONDS, SHUTTING_DOWN, ClientGone

log = logging.getLogger("octavo.server")

PING_SECONDS = 10.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
END = {"type": "http.response.body", "body": b"", "more_body": False}
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encoded(value: object) -> bytes:
    """Compact JSON in UTF-8, on one line."""
    return ENCODER.encode(value).encode("utf-8", "replace")


def event(data: bytes, *, name: bytes = b"") -> bytes:
    """One server-sent event. `data` is one line; `name` goes before it if there is one."""
    return (b"event: " + name + b"\ndata: " if name else b"data: ") + data + b"\n\n"


class EventStream(Response):
    """Sends `events`, each a whole event.

    `failed` makes the last event of an exception raised after the first event went out.
    `closed` is awaited however it ends: there whatever produces the events is stopped.
    `ping` is sent when nothing else was for PING_SECONDS; None sends nothing.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        failed: Callable[[Exception], bytes],
        closed: Callable[[], Awaitable[None]],
        *,
        stall_seconds: float,
        ping: bytes | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._failed = failed
        self._closed = closed
        self._stall_seconds = stall_seconds
        self._ping = ping
        self._started = False
        self._ended = False  # the last event has gone out
        self._over = False  # and the end of the body
        self._quiet = True  # since the last look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await while_connected(receive, self._send(send))
        except ClientGone:
            if not self._over:  # after the end of the body the reader may go
                raise
        except asyncio.CancelledError:
            await self._say_goodbye(send)
            raise
        finally:
            await self._closed()
            await self._events.aclose()

    async def _send(self, send: Send) -> None:
        """All events, and pings in between. Each is one message: they do not mix."""
        if self._ping is None:
            return await self._send_all(send)
        pinging = asyncio.create_task(self._send_pings(send, self._ping))
        try:
            await self._send_all(send)
        finally:
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)

    async def _send_pings(self, send: Send, ping: bytes) -> None:
        """Ends quietly when the reader stalls: who sends events will notice, too."""
        with contextlib.suppress(ClientGone):
            while True:
                self._quiet = True
                await asyncio.sleep(PING_SECONDS)
                if self._quiet:
                    await self._write(send, ping)

    async def _send_all(self, send: Send) -> None:
        """Every event, then the end of the body."""
        try:
            async for data in self._events:
                await self._write(send, data)
        except ClientGone:
            raise
        except Exception as error:
            if not self._started:
                raise
            await self._write(send, self._failed(error))
        self._ended = True
        await send(END)
        self._over = True

    async def _write(self, send: Send, data: bytes) -> None:
        """One event; waits while the transport's buffer is full. Raises ClientGone on a stall."""
        self._quiet = False
        try:
            async with asyncio.timeout(self._stall_seconds):
                if not self._started:
                    self._started = True
                    start = {"type": "http.response.start", "status": 200, "headers": HEADERS}
                    await send(start)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            log.warning("a reader took nothing for %g s and was cut off", self._stall_seconds)
            raise ClientGone from None

    async def _say_goodbye(self, send: Send) -> None:
        """The drain time is over: an answer that has begun ends with an error event.

        Not one whose last event has gone out already, and waits for a slow reader.
        """
        if not self._started or self._over:
            return
        data = b"" if self._ended else self._failed(EngineClosed(SHUTTING_DOWN))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await send({**END, "body": data})
