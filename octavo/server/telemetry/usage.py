"""Sums over the ledger: `GET /v1/usage`. Owns the question's bounds and the SQL; writes nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from octavo.core.errors import EngineError, RequestError
from octavo.server.errors import quoted
from octavo.server.telemetry import ledger_file

# What a group is named by, and its column in SQL. Days are UTC.
GROUPS = {"day": "date(ended_at, 'unixepoch')", "key": "key_id", "model": "model"}
SUMMED = (
    "prompt_tokens",
    "read_tokens",
    "written_5m_tokens",
    "written_1h_tokens",
    "written_implicit_tokens",
    "unkept_tokens",
    "output_tokens",
    "duration_seconds",
    "block_seconds",
)
MAX_GROUPS = 1000
# For the API's description: the handler reads the query by hand, to refuse what it does not know.
PARAMETERS: list[dict[str, Any]] = [
    {"name": "by", "in": "query", "schema": {"enum": list(GROUPS), "default": "day"}},
    {"name": "since", "in": "query", "schema": {"type": "string", "maxLength": 40}},
    {"name": "until", "in": "query", "schema": {"type": "string", "maxLength": 40}},
]
MAX_TIME_CHARS = 40
LATEST = 253402300799.0  # the end of the year 9999, the last that SQLite's days know
QUERY_SECONDS = 30.0
CHECK_EVERY_STEPS = 100_000  # of SQLite's machine


@dataclass(frozen=True, slots=True)
class Question:
    """Sums per `by` of the rows that ended in [since, until), in unix seconds."""

    by: str
    since: float
    until: float

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Question:
        """From a query string's fields. Raises RequestError naming the field."""
        for name in query:
            if name not in ("by", "since", "until"):
                message = f"Unknown parameter: {quoted(name)}."
                raise RequestError(message, param=name[:80], code="unknown_parameter")
        by = query.get("by", "day")
        if by not in GROUPS:
            raise RequestError(f"by must be one of {', '.join(GROUPS)}.", param="by")
        since = moment(query["since"], "since") if "since" in query else 0.0
        until = moment(query["until"], "until") if "until" in query else LATEST
        if until < since:
            raise RequestError("until must not be before since.", param="until")
        return cls(by, since, until)


def moment(text: str, name: str) -> float:
    """A date or a time of ISO 8601 as unix seconds; UTC where it has no zone."""
    try:
        if len(text) > MAX_TIME_CHARS:
            raise ValueError
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        seconds = found.timestamp()
    except (ValueError, OverflowError):
        message = f"{name} must be a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z."
        raise RequestError(message, param=name) from None
    return min(max(seconds, 0.0), LATEST)


def usage(path: Path, question: Question) -> dict[str, Any]:
    """The answer's object. Blocks; raises EngineError when the file cannot be read."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        try:
            rows = _sums(path, question)
        except sqlite3.Error:
            raise EngineError("The ledger cannot be read now.", code="ledger_unreadable") from None
    return {
        "object": "usage",
        "by": question.by,
        "since": _iso(question.since),
        "until": _iso(question.until),
        "data": rows[:MAX_GROUPS],
        "has_more": len(rows) > MAX_GROUPS,
    }


def _sums(path: Path, question: Question) -> list[dict[str, Any]]:
    connection = ledger_file.open_to_read(path)
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            return []  # another thread or process is about to make the table
        deadline = time.monotonic() + QUERY_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > deadline, CHECK_EVERY_STEPS)
        connection.row_factory = sqlite3.Row
        sums = ", ".join(f"total({name}) AS {name}" for name in SUMMED)
        found = connection.execute(
            f"SELECT {GROUPS[question.by]} AS name, count(*) AS requests, {sums}, "
            "avg(first_token_seconds) AS mean_first_token_seconds, "
            "sum(cost_dollars) AS cost_dollars, "
            "count(*) - count(cost_dollars) AS unpriced_requests "
            "FROM requests WHERE ended_at >= ? AND ended_at < ? "
            "GROUP BY 1 ORDER BY 1 LIMIT ?",
            (question.since, question.until, MAX_GROUPS + 1),
        )
        return [_group(dict(row), question.by) for row in found]
    finally:
        connection.close()


def _group(row: dict[str, Any], by: str) -> dict[str, Any]:
    """One group: `total` adds up as a float so that no sum overflows."""
    named = {by: row.pop("name")}
    return named | {
        name: int(value) if name.endswith("_tokens") else value for name, value in row.items()
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
