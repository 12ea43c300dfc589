"""Lengths of requests: one for all, or those of a trace. Knows the traces' formats, no files.

A request's length is prompt and answer together, what its cache holds in the end.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.core.errors import ConfigError

MAX_REQUESTS = 1_000_000
MAX_TOKENS = 1 << 28


class Pair(NamedTuple):
    """Tokens of one request."""

    prompt: int
    answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """`tokens`: of each request. `pairs`: the same by prompt and answer, where a trace tells.
    `source` names them in the report."""

    tokens: Sequence[int]
    source: str
    pairs: Sequence[Pair] = ()

    @property
    def mean(self) -> float:
        return sum(self.tokens) / len(self.tokens)


def fixed(tokens: int) -> Lengths:
    """Every request of one length; raises ConfigError."""
    if not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"length must be from 1 to {MAX_TOKENS}; it is {tokens}", param="length")
    return Lengths(tokens=(tokens,), source=f"{tokens:,} tokens each")


def of_trace(text: str, name: str) -> Lengths:
    """Read a trace: JSON lines with input_length and output_length (Mooncake), CSV with
    ContextTokens and GeneratedTokens (Azure), or a session with requests of in and out, or one on
    each line (`octavo usage export`).

    Raises ConfigError naming the line.
    """
    head = text.lstrip()[:1]
    if head == "{":
        first = text.lstrip().partition("\n")[0]
        if '"input_length"' in first:
            found = _json_lines(text, name)
        else:
            found = _session_lines(text, name) if _is_session(first) else _session(text, name)
    else:
        found = _csv(text, name)
    if not found:
        raise ConfigError(f"{name}: holds no request with a length", param="lengths")
    return Lengths(
        tokens=[max(1, one.prompt + one.answer) for one in found],
        source=f"{len(found):,} requests of {name}",
        pairs=found,
    )


def _json_lines(text: str, name: str) -> list[Pair]:
    found: list[Pair] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            row = _parsed(line, f"{name}: line {number}")
            found.append(_pair(row, "input_length", "output_length", f"{name}: line {number}"))
            _check_count(found, name)
    return found


def _is_session(line: str) -> bool:
    """Whether one line holds a whole session: further ones may follow."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _session_lines(text: str, name: str) -> list[Pair]:
    found: list[Pair] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            found += _session(line, f"{name}: line {number}")
            _check_count(found, name)
    return found


def _session(text: str, name: str) -> list[Pair]:
    row = _parsed(text, name)
    requests = row.get("requests")
    if not isinstance(requests, list):
        raise ConfigError(f"{name}: has no list of requests", param="lengths")
    _check_count(requests, name)
    return [
        _pair(one if isinstance(one, dict) else {}, "in", "out", f"{name}: request {number}")
        for number, one in enumerate(requests, 1)
    ]


def _csv(text: str, name: str) -> list[Pair]:
    found: list[Pair] = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        where = f"{name}: line {number}"
        try:
            numbers = {key: int(row[key]) for key in ("ContextTokens", "GeneratedTokens")}
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                f"{where}: ContextTokens and GeneratedTokens must be whole numbers", param="lengths"
            ) from None
        found.append(_pair(numbers, "ContextTokens", "GeneratedTokens", where))
        _check_count(found, name)
    return found


def _parsed(text: str, where: str) -> dict[str, object]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: not valid JSON", param="lengths") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be an object", param="lengths")
    return row


def _pair(row: Mapping[str, object], first: str, second: str, where: str) -> Pair:
    numbers = []
    for field in (first, second):
        value = row.get(field)
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            raise ConfigError(
                f"{where}: {field} must be a whole number from 0 to {MAX_TOKENS}", param="lengths"
            )
        numbers.append(value)
    return Pair(*numbers)


def _check_count(found: Sequence[object], name: str) -> None:
    if len(found) > MAX_REQUESTS:
        raise ConfigError(f"{name}: more than {MAX_REQUESTS:,} requests", param="lengths")
