"""HTTP/1.1 below the application: what never becomes a request is answered here.

Oversized headers get 431, headers that do not arrive in time 408, anything unreadable 400.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from octavo.server.errors import Fault
from octavo.server.limits import ServerLimits

LINGER_SECONDS = 1.0
FAULTS = {
    400: Fault(400, "The request is not valid HTTP.", "invalid_http"),
    408: Fault(408, "The request's header did not arrive in time.", "request_timeout"),
    431: Fault(431, "The request's header is too large.", "headers_too_large"),
}


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for headers and errors of our shape."""

    header_seconds = ServerLimits().header_seconds
    _header_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_header()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        # A header has begun and not ended while the parser still waits for a request.
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None:
            self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called while the parser's exception is handled: it knows the better status."""
        del msg
        hint = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(FAULTS.get(hint, FAULTS[400]))

    def _await_header(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._header_late)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self._refuse(FAULTS[408])

    def _refuse(self, fault: Fault) -> None:
        """Answer and close. An answer that has begun is only cut off.

        Closing with unread input would reset the connection before the answer is read, so what
        still comes is thrown away for a moment.
        """
        self._refused = True
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = fault.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        start = h11.Response(
            status_code=fault.status, headers=headers, reason=STATUS_PHRASES[fault.status]
        )
        events = (start, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


def protocol_class(limits: ServerLimits) -> type[BoundedProtocol]:
    """The protocol with this server's deadline; uvicorn makes the instances itself."""
    return type("Protocol", (BoundedProtocol,), {"header_seconds": limits.header_seconds})
