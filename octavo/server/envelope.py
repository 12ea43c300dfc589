"""Around every request: its id, its record, the answer to any exception. Knows no content."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.core.errors import EngineClosed
from octavo.server.anthropic import errors as anthropic_errors
from octavo.server.errors import GOODBYE_SECONDS, SHUTTING_DOWN, ClientGone, Fault, fault_of
from octavo.server.telemetry.record import Observer, Record, current

CLIENT_GONE = 499  # nginx's number for a client that closed the connection


class Envelope:
    """The outermost layer of ours: whatever goes wrong inside still gets an answer of one shape."""

    def __init__(self, app: ASGIApp, *, observer: Observer) -> None:
        self._app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        record = Record(request_id, scope, self._observer)
        token = current.set(record)
        exchange = Exchange(send, request_id, anthropic=anthropic_errors.own(scope["path"]))
        started_seconds = time.perf_counter()
        try:
            await self._app(scope, receive, exchange.send)
        except asyncio.CancelledError:
            # The drain time is over. This is the outermost frame of the request: it ends here.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await exchange.fail(fault_of(EngineClosed(SHUTTING_DOWN)))
        except ClientGone:
            exchange.status = CLIENT_GONE
        except Exception as error:
            await exchange.fail(fault_of(error))
        finally:
            current.reset(token)
            record.over(exchange.status or CLIENT_GONE, time.perf_counter() - started_seconds)


class Exchange:
    """The answer to one request: adds the id and remembers the status."""

    def __init__(self, send: Send, request_id: str, *, anthropic: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._anthropic = anthropic
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            names = (b"x-request-id", b"request-id") if self._anthropic else (b"x-request-id",)
            own = [(name, self._request_id.encode("ascii")) for name in names]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await self._send(message)

    async def fail(self, fault: Fault) -> None:
        """Send the error, unless an answer has begun: then the connection just ends."""
        if self.status is not None:
            return
        body = fault.body()
        if self._anthropic:
            fault = anthropic_errors.translated(fault)
            body = anthropic_errors.body(fault, self._request_id)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            *((name.encode("ascii"), value.encode("ascii")) for name, value in fault.headers),
        ]
        await self.send({"type": "http.response.start", "status": fault.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
