"""A request's body: bounded bytes, then one JSON object. Knows no fields and no engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.types import Receive

from octavo.core.errors import RequestError
from octavo.server.errors import ClientGone, HttpFault
from octavo.server.limits import MIB, ServerLimits

CLOSE = (("connection", "close"),)
DRAIN_BYTES = 64 * MIB
MAX_MEMBERS = 10_000  # of one object: each unknown name would be a complaint of its own
DRAIN_SECONDS = 2.0


async def read_body(request: Request, limits: ServerLimits) -> bytes:
    """The body's bytes. Raises HttpFault 408, 413 or 415, or ClientGone."""
    check_media_type(request)
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limits.body_bytes:
        await refuse_size(request, limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await collect(request, limits)
    except TimeoutError:
        message = f"The body did not arrive within {limits.body_seconds:g} s."
        raise HttpFault(408, message, code="request_timeout", headers=CLOSE) from None


def check_media_type(request: Request) -> None:
    """JSON in UTF-8, not compressed: what is not declared so is not guessed at."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = "Compressed bodies are not read; send the body without Content-Encoding."
        raise HttpFault(415, message, code="unsupported_encoding", headers=CLOSE)
    media, _, options = request.headers.get("content-type", "").lower().partition(";")
    charset = options.replace(" ", "").replace('"', "")
    if media.strip() != "application/json" or charset not in ("", "charset=utf-8"):
        message = "Content-Type must be application/json (in UTF-8)."
        raise HttpFault(415, message, code="unsupported_media_type", headers=CLOSE)


async def collect(request: Request, limits: ServerLimits) -> bytes:
    """All parts of the body, never more than the limit."""
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limits.body_bytes:
            await refuse_size(request, limits)
        if not message.get("more_body", False):
            return bytes(body)


async def refuse_size(request: Request, limits: ServerLimits) -> NoReturn:
    """Answer 413, but first read what still comes."""
    await read_rest(request.receive)
    message_text = f"The body is larger than {limits.body_bytes} bytes."
    raise HttpFault(413, message_text, code="request_too_large", headers=CLOSE)


async def read_rest(receive: Receive) -> None:
    """Read and drop what still comes of a body that is refused, for a moment.

    Closing with unread input resets the connection, and the client may never see the answer.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            left = DRAIN_BYTES
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    break


def parse_object(raw: bytes) -> dict[str, Any]:
    """One JSON object. Raises RequestError `invalid_encoding`, `invalid_json` or `invalid_type`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"The body is not UTF-8 at byte {error.start}."
        raise RequestError(message, code="invalid_encoding") from None
    try:
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=bounded_object)
    except RecursionError:
        raise RequestError("The JSON is nested too deeply.", code="invalid_json") from None
    except json.JSONDecodeError as error:
        message = f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        raise RequestError(message, code="invalid_json") from None
    except ValueError:
        raise RequestError("A number has too many digits.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_type")
    return value


def bounded_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One object of the body; of a name that is there twice the last value counts."""
    if len(pairs) > MAX_MEMBERS:
        message = f"An object has {len(pairs)} members; at most {MAX_MEMBERS} are read."
        raise RequestError(message, code="invalid_json")
    return dict(pairs)


def refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity are not JSON."""
    raise RequestError(f"{name} is not a JSON value.", code="invalid_json")
