"""From a request's bytes to checked work, whatever API it speaks. Knows no fields and no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from octavo.core.errors import CallerError, ModelNotFound, OctavoError
from octavo.server.body import read_body
from octavo.server.errors import quoted
from octavo.server.limits import ServerLimits
from octavo.server.wire_errors import request_error

Work = TypeVar("Work")
Wire = TypeVar("Wire", bound=BaseModel)
MAX_LABEL_CHARS = 128


async def read_work(
    request: Request, limits: ServerLimits, translate: Callable[[bytes, str], Work]
) -> Work:
    """`translate` of the body and the caller's label; in a thread when the body is large."""
    raw = await read_body(request, limits)
    label = request.headers.get("x-request-id", "")[:MAX_LABEL_CHARS]
    if len(raw) <= limits.inline_bytes:
        return translate(raw, label)
    return await asyncio.to_thread(translate, raw, label)


def validated(model: type[Wire], body: dict[str, Any]) -> Wire:
    """The body as `model`. Raises RequestError for the first thing that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise request_error(error) from None


def check_model(asked: str, served: str) -> None:
    """Raise ModelNotFound unless the caller asks for what is served."""
    if asked != served:
        message = f"The model {quoted(asked)} does not exist here; this server has {served!r}."
        raise ModelNotFound(message, param="model")


def renamed(error: OctavoError, names: Mapping[str, str]) -> OctavoError:
    """`error` with its field named as the caller sent it; `names`: the engine's name → theirs."""
    if isinstance(error, CallerError) and error.param is not None:
        error.param = names.get(error.param, error.param)
    return error
