"""`octavo usage` from its flags to its output."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.cli import usage_output
from octavo.pricing.api_prices import Layers
from octavo.usage.show import report_parts
from tests.cli.conftest import Result
from tests.usage.conftest import answer, home, logs, price_file, prices, read, source_of, write

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
        (("--since", "2026-11-03", "--until", "2026-11-02"), "--since"),
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


def test_misses(usage: Run) -> None:
    done = usage("misses")
    assert done.code == 0
    assert "first request" in done.out
    found = json.loads(usage("misses", "--json").out)
    assert set(found) == {"reasons", "costliest", "prices"}
    assert {one["reason"] for one in found["reasons"]} == {
        "first request", "new tokens", "model switched"
    }  # fmt: skip
    (worst,) = found["costliest"]
    assert (worst["reason"], worst["gap_minutes"]) == ("model switched", 1439.0)


def test_whatif(usage: Run) -> None:
    done = usage("whatif")
    assert "keep-alive pings: all 5 minutes" in done.out
    found = json.loads(usage("whatif", "--json").out)
    settings = {one["name"]: one for one in found["settings"]}
    assert (
        settings["as logged"]["total"] == json.loads(usage("--json").out)["totals"]["cost"]["total"]
    )
    assert all(one["rule"] for one in settings.values())


def test_an_export_and_back(usage: Run, octavo: Run, tmp_path: Path, price_file: Path) -> None:
    path = tmp_path / "traces.jsonl"
    done = usage("export", str(path))
    assert (done.code, done.out[:8]) == (0, "1 chains")
    given = ("--trace", str(path), "--prices", str(price_file), "--timezone", "UTC")
    back = json.loads(octavo("usage", "model", "--json", *given).out)
    assert {row["key"] for row in back["rows"]} == {"claude-opus-4-8", "claude-haiku-4-5"}
    assert back["totals"]["cache_read"] == 89_984  # whole blocks of the 90,000


def test_a_page(usage: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert usage("--html", str(path)).code == 0
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    done = usage("--html", str(tmp_path / "none" / "page.html"))
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("export",), "FILE"),
        (("daily", "file"), "FILE"),
        (("key",), "--server"),
        (("misses", "--html", "x"), "--html"),
        (("--json", "--html", "x"), "--html"),
        (("--watch",), "--watch"),
        (("--trace", "x"), "--trace"),
        (("--server", "http://127.0.0.1:1"), "--server"),
        (("export", "x", "--json"), "--json"),
    ],
)
def test_options_that_would_change_nothing(
    usage: Run, arguments: tuple[str, ...], hint: str
) -> None:
    done = usage(*arguments)
    assert (done.code, done.out) == (2, "")
    assert hint in done.err


def test_watching_reads_anew_until_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[int] = []

    def sleep(seconds: float) -> None:
        assert seconds == usage_output.WATCH_SECONDS
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(usage_output.time, "sleep", sleep)
    usage_output.watched(lambda: shown.append(1), watch=True)
    assert len(shown) == 3
    assert capsys.readouterr().out.count(usage_output.CLEAR) == 3


@pytest.mark.parametrize("columns", [50, 90, 150])
def test_tables_fit_the_terminal(logs: Path, prices: Layers, columns: int) -> None:
    from rich.console import Console

    rows = [
        answer("a", 0, input=10, m5=90_000, output=1000),
        answer("b", 60, m5=1000, read=90_000, output=500),
        answer("c", 86_400, model="claude-haiku-4-5", h1=50_000, output=100),
    ]
    report = source_of(logs, prices).report("session", read(logs, rows))
    out = Console(width=columns, record=True, file=io.StringIO())
    for part in report_parts(report, columns):
        out.print(part)
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= columns
    assert "$0.75" in text
    assert "…" not in text
