"""From one line of a log to what it counts. Owns the log's field names; reads no files.

Lenient: the format is its maker's own affair. A line that cannot be used is named by a reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from octavo.usage.message import Compaction, Message, Part

TORN, INVALID, UNKNOWN, SYNTHETIC = "torn", "invalid", "unknown_type", "synthetic"
OTHER = "other_rows"
MAX_TOKENS = 10**9
MAX_NAME = 200
MAX_PATH = 1000
MAX_PARTS = 64
TYPE_WITHIN = 4096
# Rows that hold no tokens. What is not here is counted as unknown.
KNOWN = frozenset(
    b"user assistant system summary attachment file-history-snapshot ai-title custom-title "
    b"progress queue-operation last-prompt agent-name agent-color pr-link mode permission-mode "
    b"text tool_use tool_result thinking image".split()
)
_TYPE = re.compile(rb'"type"\s*:\s*"([\w-]+)"')
EXTRA = ("advisor_message", "compaction")


class Place(NamedTuple):
    """What a row that does not say it takes from its file: names of file, folder and agent."""

    session: str
    project: str
    agent: str


class _Invalid(ValueError):
    """A field has a value that it cannot have."""


def parse(line: bytes, place: Place) -> Message | Compaction | str:
    """`line` without its end. A str is the reason why nothing was taken from it."""
    if not (b'"usage"' in line and b'"assistant"' in line) and not _may_compact(line):
        if not (line.startswith(b"{") and line.endswith(b"}")):
            return TORN
        kind = _TYPE.search(line, 0, TYPE_WITHIN)
        if kind is not None and kind[1] in KNOWN:
            return OTHER
    try:
        # A damaged character in a text takes nothing from the numbers.
        row = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return TORN
    if not isinstance(row, dict):
        return INVALID
    try:
        return _of(row, place)
    except _Invalid:
        return INVALID


def _may_compact(line: bytes) -> bool:
    # One search rules out nearly every line: long results of tools are most of the bytes.
    return b"ompact" in line and (b'"compact_boundary"' in line or b'"isCompactSummary"' in line)


def _of(row: Mapping[str, Any], place: Place) -> Message | Compaction | str:
    kind = row.get("type")
    if kind == "assistant":
        return _answer(row, place)
    if row.get("subtype") == "compact_boundary" or row.get("isCompactSummary") is True:
        return Compaction(_session(row, place), _agent(row, place), _time(row))
    known = isinstance(kind, str) and kind.encode("utf-8", "replace") in KNOWN
    return OTHER if known else UNKNOWN


def _answer(row: Mapping[str, Any], place: Place) -> Message | str:
    message = row.get("message")
    if not isinstance(message, dict):
        return INVALID
    if message.get("model") == "<synthetic>":
        return SYNTHETIC
    usage = message.get("usage")
    if usage is None:
        return OTHER
    if not isinstance(usage, dict):
        return INVALID
    key = printable(message.get("id")) or printable(row.get("uuid"))
    if not key:
        return INVALID
    model = printable(message.get("model")) or "unknown"
    main, unsplit = _part(usage, model)
    iterations = usage.get("iterations")
    iterations = iterations[:MAX_PARTS] if isinstance(iterations, list) else []
    return Message(
        id=key,
        time=_time(row),
        session=_session(row, place),
        project=printable(row.get("cwd"), MAX_PATH) or place.project,
        agent=_agent(row, place),
        version=printable(row.get("version")),
        sidechain=int(row.get("isSidechain") is True),
        stopped=int(isinstance(message.get("stop_reason"), str)),
        unsplit=unsplit,
        shown_chars=_shown_chars(message.get("content")),
        context=_context(iterations, main),
        speed=printable(usage.get("speed")),
        geo=printable(usage.get("inference_geo")),
        service_tier=printable(usage.get("service_tier")),
        main=main,
        extra=_extra(iterations, model),
    )


def _part(usage: Mapping[str, Any], model: str) -> tuple[Part, int]:
    """Tokens by kind, and 1 if writes are told without how long they are kept.

    The nested split counts; what the sum has beyond it was written for 5 minutes.
    """
    total = _count(usage, "cache_creation_input_tokens")
    nested = usage.get("cache_creation")
    split = isinstance(nested, dict)
    kept: Mapping[str, Any] = nested if isinstance(nested, dict) else {}
    short = _count(kept, "ephemeral_5m_input_tokens")
    long = _count(kept, "ephemeral_1h_input_tokens")
    short += max(0, total - short - long)
    tools = usage.get("server_tool_use")
    part = Part(
        model,
        input=_count(usage, "input_tokens"),
        write_5m=short,
        write_1h=long,
        read=_count(usage, "cache_read_input_tokens"),
        # Thinking is part of it already.
        output=_count(usage, "output_tokens"),
        searches=_count(tools, "web_search_requests") if isinstance(tools, dict) else 0,
    )
    return part, int(not split and total > 0)


def _extra(iterations: list[Any], model: str) -> tuple[Part, ...]:
    """What the top level of `usage` leaves out."""
    return tuple(
        _part(one, printable(one.get("model")) or model)[0]
        for one in iterations
        if isinstance(one, dict) and one.get("type") in EXTRA
    )


def _context(iterations: list[Any], main: Part) -> int:
    """The last prompt of the call: the top level adds up all of them."""
    own = [one for one in iterations if isinstance(one, dict) and one.get("type") == "message"]
    return (_part(own[-1], "")[0].prompt if own else 0) or main.prompt


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        raise _Invalid
    return value


def _time(row: Mapping[str, Any]) -> float:
    stamp = row.get("timestamp")
    if not isinstance(stamp, str):
        raise _Invalid
    try:
        when = datetime.fromisoformat(stamp[:40])
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _Invalid from None
    if not (math.isfinite(seconds) and 0 <= seconds < 32503680000):  # the year 3000
        raise _Invalid
    return seconds


def _session(row: Mapping[str, Any], place: Place) -> str:
    return printable(row.get("sessionId")) or place.session


def _agent(row: Mapping[str, Any], place: Place) -> str:
    agent = printable(row.get("agentId")) or place.agent
    return agent or ("side" if row.get("isSidechain") is True else "")


def printable(value: Any, most: int = MAX_NAME) -> str:
    """Fit to be shown: a log must not write control characters to a terminal."""
    if not isinstance(value, str):
        return ""
    value = value[:most]
    return value if value.isprintable() else "".join(c for c in value if c.isprintable())


def _shown_chars(content: Any) -> int:
    """Characters of an answer's text and thinking."""
    total = 0
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            for field in ("text", "thinking"):
                value = block.get(field)
                total += len(value) if isinstance(value, str) else 0
    return total
