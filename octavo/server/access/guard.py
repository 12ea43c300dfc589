"""What is turned away before routing: too many headers, foreign hosts and origins.

A page in a browser can reach a server on the same machine by a name that it makes point there;
so a server that listens on loopback answers to loopback names only. Knows no routes and no bodies.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import HttpFault
from octavo.server.limits import ServerLimits

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Checks the headers of every request. `hosts` None accepts any host name."""

    def __init__(self, app: ASGIApp, *, limits: ServerLimits, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: list[tuple[bytes, bytes]] = scope["headers"]
            self._check_size(headers)
            if self._hosts is not None:
                self._check_names(headers, self._hosts)
        await self._app(scope, receive, send)

    def _check_size(self, headers: list[tuple[bytes, bytes]]) -> None:
        limits = self._limits
        n_bytes = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > limits.header_fields or n_bytes > limits.header_bytes:
            message = (
                f"The request has {len(headers)} headers of {n_bytes} bytes; at most "
                f"{limits.header_fields} of {limits.header_bytes} bytes are read."
            )
            raise HttpFault(431, message, code="headers_too_large")

    def _check_names(self, headers: list[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
        for name, value in headers:
            text = value.decode("latin-1")
            if name == b"host" and host_name(f"//{text}") not in hosts:
                message = "This server answers only to its own host names."
                raise HttpFault(403, message, code="host_not_allowed")
            if name == b"origin" and host_name(text) not in hosts:
                message = "This server answers no pages of other origins."
                raise HttpFault(403, message, code="origin_not_allowed")


def host_name(address: str) -> str | None:
    """The host of a URL or `//host:port`, without port and in lower case; None if there is none."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
