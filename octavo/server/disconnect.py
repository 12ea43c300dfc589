"""Work that nobody waits for any more is stopped. Knows no HTTP beyond the closed connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from octavo.server.errors import ClientGone

Result = TypeVar("Result")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, or ClientGone (and `work` cancelled) once the client has left.

    The body must have been read: what `receive` still brings is only the end of the connection.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        # Both ends are awaited, so that no cancel is still under way when the caller goes on.
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    """Return when the connection is closed."""
    while (await receive())["type"] != "http.disconnect":
        pass
