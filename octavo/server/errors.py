"""From an exception to an HTTP status and OpenAI's error object.

Knows no routes and logs no content.
"""

from __future__ import annotations

import json
import logging
import traceback
from dataclasses import dataclass

from octavo.core.errors import (
    CallerError,
    EngineClosed,
    ModelNotFound,
    OctavoError,
    Overloaded,
)

log = logging.getLogger("octavo.server")

RETRY_AFTER_SECONDS = 1
# The request itself failed in the engine, such as on numbers that are not finite, and would again:
# clients that repeat a 500 by themselves are told not to.
NO_RETRY = (("x-should-retry", "false"),)
TYPE_BY_STATUS = {
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable",
}
INTERNAL_MESSAGE = "The server failed on this request. The fault is logged with the request id."
MAX_QUOTED_CHARS = 80
SHUTTING_DOWN = "The server is shutting down."
GOODBYE_SECONDS = 1.0  # for the last words to a client when the drain time is over


class HttpFault(CallerError):
    """A fault that has its own HTTP status, such as 404, 413 or 415."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status
        self.headers = headers


class ClientGone(Exception):
    """The client closed the connection; nobody is left to answer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes out: status, the four keys of the error object, and extra headers."""

    status: int
    message: str
    code: str | None
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def type(self) -> str:
        """OpenAI's error type for the status; anything else below 500 is the request's fault."""
        fallback = "invalid_request_error" if self.status < 500 else "server_error"
        return TYPE_BY_STATUS.get(self.status, fallback)

    def body(self) -> bytes:
        """The error object. ASCII only, so that quoted input can never break the encoding."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode("ascii")


def fault_of(error: Exception) -> Fault:
    """The answer to `error`. An unexpected one sends nothing out, and only its place is logged."""
    if isinstance(error, HttpFault):
        return Fault(error.status, error.message, error.code, error.param, error.headers)
    if isinstance(error, ModelNotFound):
        return Fault(404, error.message, error.code, error.param)
    if isinstance(error, CallerError):
        return Fault(400, error.message, error.code, error.param)
    if isinstance(error, Overloaded | EngineClosed):
        wait = (
            ("retry-after", str(RETRY_AFTER_SECONDS)),
            ("retry-after-ms", str(RETRY_AFTER_SECONDS * 1000)),
        )
        return Fault(503, error.message, error.code, error.param, wait)
    if isinstance(error, OctavoError):
        return Fault(500, error.message, error.code, error.param, NO_RETRY)
    log_failure(error)
    return Fault(500, INTERNAL_MESSAGE, "server_error")


def log_failure(error: BaseException) -> None:
    """Type and place of a bug. Its message is left out: it may quote a prompt."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("unexpected %s\n%s", type(error).__name__, frames)


def quoted(text: str) -> str:
    """A caller's own word as it may stand in a message: short, and printable."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:MAX_QUOTED_CHARS])
    return f"'{shown}{'…' if len(text) > MAX_QUOTED_CHARS else ''}'"
