"""The same tables from a running Octavo's ledger: `GET /v1/usage`. Owns that question's wire form.

The server counts by its own day (UTC) and charges its operator's prices, in one sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any

from octavo.core.errors import ConfigError, EngineError
from octavo.usage.bill import Bill
from octavo.usage.grouping import Filter, Row, total
from octavo.usage.report import Report

SECONDS = 30.0
MAX_ANSWER_BYTES = 16 << 20
MAX_SUM = 1 << 62
BY = {"daily": "day", "weekly": "day", "monthly": "day", "model": "model", "key": "key"}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def ledger_report(
    url: str, group: str, wanted: Filter, *, headers: Mapping[str, str] = NO_HEADERS
) -> Report:
    """Raises ConfigError for a question that the ledger cannot answer, EngineError if it does not.

    `headers`: the key of a protected server.
    """
    if group not in BY:
        raise ConfigError(f"--server: the ledger knows no {group}; ask for {', '.join(BY)}")
    if wanted.project or (wanted.model and group != "model"):
        name = "project" if wanted.project else "model"
        raise ConfigError(f"--server: the ledger's rows cannot be chosen by --{name}", param=name)
    answer = _asked(url, _question(group, wanted), headers)
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise EngineError("--server: the answer of /v1/usage is not understood")
    bills: dict[str, Bill] = {}
    for one in data:
        key = _key(one, group)
        if wanted.model.lower() in key.lower():
            bills.setdefault(key, Bill()).merge(_bill(one))
    rows = [Row(key, bill) for key, bill in sorted(bills.items())]
    return Report(
        group=group,
        rows=rows,
        totals=total(rows),
        price_date="",
        price_source="the server",
        notes=_notes(answer),
    )


def _notes(answer: Mapping[str, Any]) -> list[str]:
    notes = ["From the server's ledger: its days are UTC, its dollars are its operator's prices."]
    if answer.get("has_more") is True:
        notes.append("The server has more groups than it told: narrow --since and --until.")
    free = sum(_count(one, "unpriced_requests") for one in answer["data"])
    if free:
        notes.append(f"{free:,} requests had no price at the server and are in no sum.")
    return notes


def _question(group: str, wanted: Filter) -> dict[str, str]:
    asked = {"by": BY[group]}
    if wanted.since:
        asked["since"] = wanted.since.isoformat()
    if wanted.until:
        asked["until"] = (wanted.until + timedelta(days=1)).isoformat()
    return asked


def _asked(url: str, question: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, Any]:
    import json

    import httpx

    place = url.rstrip("/").removesuffix("/v1") + "/v1/usage"
    try:
        # No proxy of the environment: the key is for this server alone.
        with (
            httpx.Client(timeout=SECONDS, trust_env=False) as client,
            client.stream("GET", place, params=dict(question), headers=dict(headers)) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise EngineError(f"--server: /v1/usage answered {response.status_code}")
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise EngineError("--server: the answer of /v1/usage is too long")
        answer = json.loads(body)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise ConfigError(
            "--server: give a URL such as http://127.0.0.1:8000", param="server"
        ) from None
    except httpx.HTTPError as error:
        raise EngineError(f"--server: no answer ({type(error).__name__})") from None
    except (ValueError, RecursionError):
        raise EngineError("--server: the answer of /v1/usage is not JSON") from None
    if not isinstance(answer, dict):
        raise EngineError("--server: the answer of /v1/usage is not understood")
    return answer


def _key(row: Mapping[str, Any], group: str) -> str:
    name = row.get(BY[group])
    text = name if isinstance(name, str) else "none"
    text = "".join(c for c in text[:200] if c.isprintable())
    if group in ("weekly", "monthly"):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            raise EngineError("--server: the ledger's days are not understood") from None
        return f"{day:%Y-%m}" if group == "monthly" else _monday(day)
    return text


def _monday(day: date) -> str:
    return (day - timedelta(days=day.weekday())).isoformat()


def _bill(row: Mapping[str, Any]) -> Bill:
    """Only what a request asked to be kept is a cache write, as in the server's own prices."""
    computed = _count(row, "unkept_tokens") + _count(row, "written_implicit_tokens")
    tokens = [
        computed,
        _count(row, "written_5m_tokens"),
        _count(row, "written_1h_tokens"),
        _count(row, "read_tokens"),
        _count(row, "output_tokens"),
        0,
    ]
    dollars = row.get("cost_dollars")
    known = isinstance(dollars, int | float) and abs(dollars) < MAX_SUM  # not so NaN
    bill = Bill(messages=_count(row, "requests"), tokens=tokens)
    if known:
        bill.lump = float(dollars or 0.0)
    else:
        bill.unpriced_tokens = sum(tokens)
        bill.unpriced_models = {"no price at the server"}
    return bill


def _count(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_SUM:
        raise EngineError(f"--server: {name} in the answer of /v1/usage is not understood")
    return int(value)
