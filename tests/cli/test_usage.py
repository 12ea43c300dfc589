"""`octavo usage` from its flags to its output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Result
from tests.usage.conftest import answer, home, logs, price_file, prices, write

Run = Callable[..., Result]
__all__ = ["home", "logs", "price_file", "prices"]


@pytest.fixture
def usage(octavo: Run, logs: Path, price_file: Path) -> Run:
    """The command over a small log, with the tests' prices."""
    rows = [
        answer("a", 0, input=10, m5=90_000, output=1000),
        answer("b", 60, m5=1000, read=90_000, output=500),
        answer("c", 86_400, model="claude-haiku-4-5", h1=50_000, output=100),
    ]
    write(logs / "p" / "session-1.jsonl", [*rows, "broken", '{"type":"new-kind"}'])

    def run(*arguments: str) -> Result:
        given = ("--logs", str(logs), "--prices", str(price_file), "--timezone", "UTC")
        return octavo("usage", *arguments, *given)

    return run


def test_a_table_for_people(usage: Run) -> None:
    done = usage()
    assert done.code == 0
    assert "2026-11-02" in done.out
    assert "49.7%" in done.out  # of the first day
    assert "$0.75" in done.out  # total
    assert "of 2026-11-01" in done.out
    assert "1 torn, 1 unknown_type" in done.out
    assert "secret" not in done.out


def test_json_has_stable_names(usage: Run) -> None:
    found = json.loads(usage("--json").out)
    assert [row["key"] for row in found["rows"]] == ["2026-11-02", "2026-11-03"]
    tokens = ("input", "cache_write_5m", "cache_write_1h", "cache_read", "output", "other")
    assert [found["totals"][name] for name in tokens] == [10, 91_000, 50_000, 90_000, 1600, 0]
    assert set(found["rows"][0]["cost"]) == {*tokens, "total", "uncached", "saved"}
    assert found["prices"]["date"] <= "2026-11-01"
    assert found["skipped"] == {"torn": 1, "unknown_type": 1}
    assert found["totals"]["cost"]["cache_write_1h"] == 0.1


@pytest.mark.parametrize("view", ["weekly", "monthly", "session", "project", "model", "blocks"])
def test_every_grouping_has_the_same_totals(usage: Run, view: str) -> None:
    assert (
        json.loads(usage(view, "--json").out)["totals"]
        == (json.loads(usage("--json").out)["totals"])
    )


def test_filters_and_a_second_run_from_the_index(usage: Run, home: Path) -> None:
    assert json.loads(usage("--json", "--until", "2026-11-02").out)["totals"]["messages"] == 2
    assert list((home / ".local/share/octavo").glob("usage-*.sqlite"))
    assert json.loads(usage("--json", "--model", "haiku").out)["totals"]["messages"] == 1


def test_without_an_index_nothing_is_left(usage: Run, home: Path) -> None:
    assert usage("--no-index").code == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--since", "soon"), "--since"),
        (("hourly",), "hourly"),
    ],
)
def test_wrong_options(usage: Run, arguments: tuple[str, ...], hint: str) -> None:
    done = usage(*arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


def test_no_logs_is_said(octavo: Run, home: Path) -> None:
    done = octavo("usage")
    assert done.code == 0
    assert "--logs" in done.out
