"""Faults in Anthropic's words: its statuses, types and error object. Knows no routes' handlers."""

from __future__ import annotations

import json
from dataclasses import replace

from octavo.server.errors import Fault

ROOT = "/v1/messages"
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
OVERLOADED = 529  # this API's status for what is 503 elsewhere, when later may do


def own(path: str) -> bool:
    """Whether errors on `path` are told in this API's shape."""
    return path == ROOT or path.startswith(f"{ROOT}/")


def translated(fault: Fault) -> Fault:
    """The fault with this API's status; all else stays."""
    if fault.status == 503 and fault.code == "overloaded":
        return replace(fault, status=OVERLOADED)
    return fault


def body(fault: Fault, request_id: str) -> bytes:
    """The error object, ASCII only. It has no field for the parameter: it begins the message."""
    message = fault.message
    if fault.param is not None:
        message = f"{fault.param.replace('[', '').replace(']', '')}: {message}"
    kind = TYPES.get(fault.status, "invalid_request_error" if fault.status < 500 else "api_error")
    error = {"type": kind, "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": request_id}).encode("ascii")
