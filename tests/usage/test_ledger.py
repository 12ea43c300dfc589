"""Tables from a server's ledger, against a small server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from octavo.core.errors import ConfigError, EngineError
from octavo.server.telemetry import ledger_file
from octavo.server.telemetry.usage import Question
from octavo.server.telemetry.usage import usage as server_usage
from octavo.usage.grouping import Filter, day_named
from octavo.usage.ledger import BY, MAX_ANSWER_BYTES, ledger_report

ROW = {
    "requests": 2,
    "prompt_tokens": 1000,
    "read_tokens": 600,
    "written_5m_tokens": 100,
    "written_1h_tokens": 50,
    "written_implicit_tokens": 200,
    "unkept_tokens": 50,
    "output_tokens": 30,
    "cost_dollars": 0.25,
    "unpriced_requests": 0,
}


class Ledger:
    """Answers `data` to every question, and remembers the last one."""

    def __init__(self) -> None:
        self.data: Any = []
        self.body: bytes | None = None
        self.status = 200
        self.has_more = False
        self.asked: dict[str, str] = {}
        self.authorization: str | None = None
        self.url = ""

    def answer(self) -> bytes:
        if self.body is not None:
            return self.body
        return json.dumps({"data": self.data, "has_more": self.has_more}).encode()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    told = Ledger()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            told.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            told.authorization = self.headers.get("Authorization")
            self.send_response(told.status if parts.path == "/v1/usage" else 404)
            self.end_headers()
            self.wfile.write(told.answer())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_same_kinds_of_tokens(ledger: Ledger) -> None:
    ledger.data = [{"day": "2026-11-02", **ROW}]
    found = ledger_report(ledger.url, "daily", Filter()).as_json()
    (row,) = found["rows"]
    assert ledger.asked == {"by": "day"}
    kinds = ("input", "cache_write_5m", "cache_write_1h", "cache_read", "output", "other")
    assert [row[kind] for kind in kinds] == [250, 100, 50, 600, 30, 0]
    assert (row["key"], row["messages"], row["hit_rate"]) == ("2026-11-02", 2, 0.6)
    assert (row["cost"]["total"], row["cost"]["input"], row["cost"]["saved"]) == (0.25, None, None)
    assert found["totals"]["cost"]["total"] == 0.25
    assert found["prices"] == {"date": "", "source": "the server"}


def test_what_a_real_ledger_answers(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / ledger_file.NAME
    connection = ledger_file.open_to_write(path)
    row = ledger_file.Row(
        ended_at=86_400.0,
        request_id="r",
        key_id=None,
        model="m",
        finish="stop",
        prompt_tokens=100,
        read_tokens=60,
        written_5m_tokens=10,
        written_1h_tokens=5,
        written_implicit_tokens=20,
        unkept_tokens=5,
        output_tokens=7,
        first_token_seconds=None,
        duration_seconds=0.5,
        block_seconds=2.0,
        cost_dollars=0.125,
    )
    ledger_file.append(connection, [row, row._replace(cost_dollars=None)])
    connection.close()
    for group, by in BY.items():
        answer = server_usage(path, Question.of({"by": by}))
        ledger.body = json.dumps(answer).encode()
        (found,) = ledger_report(ledger.url, group, Filter()).rows
        assert found.bill.tokens == [50, 20, 10, 120, 14, 0]
        assert (found.bill.messages, found.bill.total) == (2, 0.125)


def test_weeks_and_months_are_sums_of_days(ledger: Ledger) -> None:
    days = ("2026-10-31", "2026-11-01", "2026-11-02", "2026-11-03")
    ledger.data = [{"day": day, **ROW} for day in days]
    wanted = Filter(since=day_named("2026-10-31", "since"), until=day_named("2026-11-30", "until"))
    weeks = ledger_report(ledger.url + "/v1/", "weekly", wanted)
    assert ledger.asked == {"by": "day", "since": "2026-10-31", "until": "2026-12-01"}
    assert [(row.key, row.bill.messages) for row in weeks.rows] == [
        ("2026-10-26", 4), ("2026-11-02", 4)
    ]  # fmt: skip
    months = ledger_report(ledger.url, "monthly", Filter()).rows
    assert [(row.key, row.bill.total) for row in months] == [("2026-10", 0.25), ("2026-11", 0.75)]


def test_keys_and_models(ledger: Ledger) -> None:
    ledger.data = [{"key": None, **ROW}, {"key": "te\x1bam", **ROW, "cost_dollars": None}]
    headers = {"Authorization": "Bearer k-1"}
    rows = ledger_report(ledger.url, "key", Filter(), headers=headers).rows
    assert ledger.authorization == "Bearer k-1"
    assert [(row.key, row.bill.priced) for row in rows] == [("none", True), ("team", False)]
    ledger.data = [{"model": "one", **ROW}, {"model": "two", **ROW}]
    assert [row.key for row in ledger_report(ledger.url, "model", Filter(model="TW")).rows] == [
        "two"
    ]


def test_what_the_sums_leave_out_is_said(ledger: Ledger) -> None:
    ledger.data, ledger.has_more = [{"day": "2026-11-02", **ROW, "unpriced_requests": 3}], True
    notes = " ".join(ledger_report(ledger.url, "daily", Filter()).notes)
    assert "UTC" in notes
    assert "more groups" in notes
    assert "3 requests had no price" in notes


def test_dollars_that_are_no_amount_are_not_known(ledger: Ledger) -> None:
    ledger.data = [{"day": "2026-11-02", **ROW, "cost_dollars": 10**400}]
    assert not ledger_report(ledger.url, "daily", Filter()).totals.priced


@pytest.mark.parametrize(
    ("group", "wanted", "hint"),
    [
        ("session", Filter(), "session"),
        ("daily", Filter(project="x"), "project"),
        ("daily", Filter(model="x"), "model"),
    ],
)
def test_what_a_ledger_cannot_tell_is_refused(group: str, wanted: Filter, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        ledger_report("http://127.0.0.1:9", group, wanted)


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not understood"),
        (b"{}", "not understood"),
        (b'{"data": [3]}', "not understood"),
        (b'{"data": [{"day": "today"}]}', "days"),
        (b'{"data": [{"day": "2026-11-02", "requests": -1}]}', "requests"),
        (b'{"data": [{"day": "2026-11-02", "read_tokens": "9"}]}', "read_tokens"),
        (b"x" * (MAX_ANSWER_BYTES + 1), "too long"),
    ],
)
def test_an_answer_that_is_none(ledger: Ledger, body: bytes, hint: str) -> None:
    ledger.body = body
    with pytest.raises(EngineError, match=hint):
        ledger_report(ledger.url, "weekly", Filter())


def test_no_server(ledger: Ledger) -> None:
    ledger.status = 401
    with pytest.raises(EngineError, match="401"):
        ledger_report(ledger.url, "daily", Filter())
    with pytest.raises(EngineError, match="no answer"):
        ledger_report("http://127.0.0.1:1", "daily", Filter())
    for url in ("127.0.0.1:8000", "ftp://127.0.0.1", ""):
        with pytest.raises(ConfigError, match="URL"):
            ledger_report(url, "daily", Filter())
