"""How many requests of the API are being answered. Counts; bounds nothing and reads no bodies."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

API = "/v1/"


@dataclass(slots=True)
class Load:
    """A count that is changed on the event loop only."""

    requests: int = 0


class InFlight:
    """Counts each POST under /v1/ from its arrival until its answer has been sent or given up."""

    def __init__(self, app: ASGIApp, *, load: Load) -> None:
        self._app = app
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counted = scope["type"] == "http" and scope["method"] == "POST"
        if not counted or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        self._load.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._load.requests -= 1
