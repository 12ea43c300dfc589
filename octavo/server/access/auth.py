"""Who may do what: every path needs a key and a scope, except three. Knows no handlers.

Decided on the path that routing goes by, `scope["path"]`, and on nothing that a client sends
beside it. A path that is not named here needs the scope `admin`, so a new route is closed until
somebody opens it.
"""

from __future__ import annotations

import asyncio

from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.access import keys
from octavo.server.access.keys import ApiKey, Keyring
from octavo.server.access.visitor import Visitor, visitor
from octavo.server.body import read_rest
from octavo.server.errors import HttpFault

OPEN = frozenset({"/health", "/ready", "/ping"})
SCOPE_OF: dict[str, keys.Scope] = {
    "/v1/chat/completions": "infer",
    "/v1/completions": "infer",
    "/v1/messages": "infer",
    "/v1/messages/count_tokens": "infer",
    "/v1/models": "infer",
    "/tokenize": "infer",
    "/detokenize": "infer",
    "/version": "infer",
    "/openapi.json": "infer",
    "/metrics": "metrics",
    "/load": "metrics",
}
INFER_BELOW = "/v1/models/"
CHALLENGE = (("www-authenticate", "Bearer"),)
MAX_SECRET_BYTES = 512
TIMEOUT_HEADER = "x-request-timeout"
MAX_TIMEOUT_SECONDS = 86_400.0


class Auth:
    """Lets through who has the right key, and notes whose it is. With no keys, everybody."""

    def __init__(self, app: ASGIApp, *, keyring: Keyring) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                key = self._admitted(scope)
                seconds = wanted_seconds(scope["headers"])
            except HttpFault:
                await read_rest(receive)
                raise
            key_id = ""
            if key is not None:
                key_id = scope["octavo.key_id"] = key.id
            visitor.set(Visitor(key_id, seconds, asyncio.get_running_loop().time()))
        elif scope["type"] != "lifespan":
            raise HttpFault(404, "Only HTTP is spoken here.", code="unknown_url")
        await self._app(scope, receive, send)

    def _admitted(self, scope: Scope) -> ApiKey | None:
        """The caller's key; None where none is needed. Raises HttpFault 401 or 403."""
        if not self._keyring or scope["path"] in OPEN:
            return None
        secret = secret_of(scope["headers"])
        key = self._keyring.find(secret) if secret else None
        if key is None:
            message = (
                "No API key was sent; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
                if secret is None
                else "The API key is not known here."
            )
            raise HttpFault(401, message, code="invalid_api_key", headers=CHALLENGE)
        needed = needed_scope(scope)
        if needed is not None and needed not in key.scopes:
            message = f"This needs a key with the scope {needed}."
            raise HttpFault(403, message, code="insufficient_scope")
        return key


def needed_scope(scope: Scope) -> keys.Scope | None:
    """The scope that a path needs; None if nothing answers there, which any key may learn."""
    path: str = scope["path"]
    if path in SCOPE_OF:
        return SCOPE_OF[path]
    if path.startswith(INFER_BELOW):
        return "infer"
    routes = scope["app"].routes
    answered = any(route.matches(scope)[0] is not Match.NONE for route in routes)
    return "admin" if answered else None


def secret_of(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """The key that was sent, in either header; two that differ are none that can be known."""
    sent = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, secret = value.strip().partition(b" ")
            sent.add(secret.strip() if scheme.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            sent.add(value.strip())
    if not sent:
        return None
    secret = sent.pop()
    return b"" if sent or len(secret) > MAX_SECRET_BYTES else secret


def wanted_seconds(headers: list[tuple[bytes, bytes]]) -> float | None:
    """How long the caller will wait for the whole answer. Raises HttpFault 400."""
    for name, value in headers:
        if name == TIMEOUT_HEADER.encode("ascii"):
            try:
                seconds = float(value)
            except ValueError:
                seconds = 0.0
            if not 0 < seconds <= MAX_TIMEOUT_SECONDS:  # NaN fails both
                message = (
                    f"'{TIMEOUT_HEADER}' must be seconds, above 0 and at most "
                    f"{MAX_TIMEOUT_SECONDS:g}."
                )
                raise HttpFault(400, message, code="invalid_value", param=TIMEOUT_HEADER)
            return seconds
    return None
