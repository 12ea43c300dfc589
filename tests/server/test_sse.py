"""An event stream that is cut off: exactly one event ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from octavo.server.sse import EventStream

LAST = b"data: [DONE]\n\n"


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 5)


@pytest.mark.parametrize("cut_at", ["first", "last", "end", "over"])
def test_whatever_the_drain_time_cuts_off_ends_once(cut_at: str) -> None:
    async def story() -> list[bytes]:
        sent: list[bytes] = []
        stuck, reached = asyncio.Event(), asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            body = message.get("body", b"")
            place = {b"data: 1\n\n": "first", LAST: "last", b"": "end"}.get(body)
            if message["type"].endswith("body") and place == cut_at and not reached.is_set():
                reached.set()
                await stuck.wait()  # a reader that takes nothing
            sent.append(body)
            if not message.get("more_body", True):
                reached.set()

        async def receive() -> dict[str, Any]:
            await stuck.wait()
            return {"type": "http.disconnect"}

        async def events() -> AsyncGenerator[bytes, None]:
            yield b"data: 0\n\n"
            yield b"data: 1\n\n"
            yield LAST

        async def closed() -> None:
            pass

        stream = EventStream(events(), lambda error: b"error", closed, stall_seconds=5)
        answering = asyncio.create_task(stream({}, receive, send))
        await until(reached)
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # "over" may have ended by itself
            await answering
        return sent

    sent = [each for each in asyncio.run(story()) if each]
    assert sum(each in (LAST, b"error") for each in sent) == 1
    assert sent[-1] == (b"error" if cut_at in ("first", "last") else LAST)


@pytest.mark.parametrize("ping", [None, b"event: ping\n\n"])
def test_a_reader_may_go_once_the_body_has_ended(ping: bytes | None) -> None:
    """It did not leave early: the answer counts as given."""

    async def story() -> bool:
        ended, left = asyncio.Event(), asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            if message["type"].endswith("body") and not message.get("more_body", True):
                ended.set()
                await asyncio.sleep(0)  # the server hears of the reader before we go on

        async def receive() -> dict[str, Any]:
            await ended.wait()
            return {"type": "http.disconnect"}

        async def events() -> AsyncGenerator[bytes, None]:
            yield LAST

        async def closed() -> None:
            left.set()

        stream = EventStream(events(), lambda error: b"", closed, stall_seconds=5, ping=ping)
        await stream({}, receive, send)
        return left.is_set()

    assert asyncio.run(story())
