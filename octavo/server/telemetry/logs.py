"""The server's log: lines as text or JSON, never the content of a request. Owns format and level.

Exceptions appear by type and place only: their messages may quote a prompt.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import time
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from octavo.core.errors import ConfigError

if TYPE_CHECKING:
    from octavo.server.telemetry.record import Record

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics", "/ping"})
FIELDS = "fields"  # the attribute of a log record that holds what JSON shows beside the message

log = logging.getLogger("octavo.server.requests")


def check(form: str, level: str) -> None:
    """Raises ConfigError for a format or level that there is not."""
    if form not in FORMATS:
        raise ConfigError(f"--log-format must be one of {', '.join(FORMATS)}", param="log_format")
    if level not in LEVELS:
        raise ConfigError(f"--log-level must be one of {', '.join(LEVELS)}", param="log_level")


@contextlib.contextmanager
def logging_to(stream: TextIO, *, form: str, level: str) -> Iterator[None]:
    """The process's log goes to `stream` meanwhile.

    Other libraries speak only to warn: what they say below that is not ours to vouch for.
    """
    check(form, level)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root, own = logging.getLogger(), logging.getLogger("octavo")
    before = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        own.setLevel(before[1])


def log_request(record: Record, model: str) -> None:
    """One line for one HTTP request. Probes that come every second are for debugging."""
    level = logging.DEBUG if record.answer.route in QUIET_ROUTES else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields = request_fields(record, model)
    text = " ".join(f"{name}={shown(value)}" for name, value in fields.items() if value is not None)
    log.log(level, "%s", text, extra={FIELDS: fields})


def request_fields(record: Record, model: str) -> dict[str, Any]:
    """What the line says. None is not known: a client may leave before its request has ended."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "duration_seconds": round(record.seconds, 6),
        "key_id": record.key_id,
    }
    generations = record.generations
    if not generations:
        return fields
    outcomes = [each.outcome for each in generations if each.outcome is not None]
    whole = len(outcomes) == len(generations)
    prompts = [each.prompt_tokens for each in generations]
    firsts = [each.first_token_seconds for each in generations]
    began = [each for each in firsts if each is not None]
    finishes = [finish for each in outcomes for finish in each.finishes]
    return fields | {
        "model": model,
        "prompt_tokens": None if None in prompts else sum(n or 0 for n in prompts),
        "cached_tokens": sum(each.read_tokens for each in outcomes) if whole else None,
        "output_tokens": sum(each.output_tokens for each in generations),
        "first_token_seconds": round(min(began), 6) if began else None,
        "finish_reasons": sorted(set(finishes)) if whole else None,
    }


def shown(value: object) -> str:
    """A value within a line of text, which no name of a key or model can break."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(char if char.isprintable() and char != " " else "?" for char in text)


class TextFormatter(logging.Formatter):
    """One line, and the place of an exception below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        return super().format(without_content(record))


class JsonFormatter(logging.Formatter):
    """One line of JSON: time, level, logger, message or fields, and the place of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        record = without_content(record)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, FIELDS, None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line)


def without_content(record: logging.LogRecord) -> logging.LogRecord:
    """A copy that quotes nobody: of an exception its type and place, of asyncio its first line.

    What asyncio writes below that shows the exception of a task, message and all.
    """
    record = copy.copy(record)
    if record.name == "asyncio":
        record.msg, record.args = record.getMessage().partition("\n")[0], None
    record.exc_text = None
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = places(record.exc_info[1], record.exc_info[2])
    record.exc_info = None
    return record


def places(error: BaseException, trace: TracebackType | None) -> str:
    """The type of an exception and where it was raised."""
    frames = "".join(traceback.format_tb(trace)).rstrip()
    return f"{type(error).__name__}\n{frames}"
