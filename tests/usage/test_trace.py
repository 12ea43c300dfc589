"""Traces without text: out of logs, and read back with prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.core.errors import ConfigError
from octavo.pricing.api_prices import Layers
from octavo.pricing.api_rates import Rates
from octavo.pricing.price_file import Entry, PriceFile
from octavo.usage.grouping import grouped
from octavo.usage.trace import exported, read_traces, write_traces
from octavo.usage.turns import turns
from tests.usage.conftest import OPUS, answer, read


def export(logs: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    history = read(logs, rows)
    return list(exported(turns(history.messages, history.compactions)))


def test_prefixes_keep_their_ids(logs: Path) -> None:
    rows = [
        answer("a", 0, m5=640),
        answer("b", 60, read=640, m5=100),
        answer("c", 120, read=128, m5=1000),  # the prefix changed after two blocks
        answer("d", 900, m5=1200),  # ran out: the same tokens, written again
    ]
    (trace,) = export(logs, *rows)
    a, b, c, d = (one["hash_ids"] for one in trace["requests"])
    assert a == list(range(1, 11))
    assert b == [*a, 11, 12]
    assert c == [1, 2, *range(13, 13 + 16)]
    assert d == [*c[:17], 29, 30]
    assert [one["t"] for one in trace["requests"]] == [0, 60, 120, 900]
    assert [one["think_time"] for one in trace["requests"]] == [0, 60, 60, 780]
    assert [one["in"] for one in trace["requests"]] == [640, 740, 1128, 1200]
    assert trace["block_size"] == 64


def test_nothing_but_numbers_and_models_leaves(logs: Path) -> None:
    side = answer("s", 30, m5=500, row={"isSidechain": True, "agentId": "x"})
    traces = export(logs, answer("a", 0, m5=640), side)
    assert [one["id"] for one in traces] == ["session-0001", "session-0002"]
    text = json.dumps(traces)
    for secret in ("secret", "project", "session-1", "req-", "uuid", "2026"):
        assert secret not in text


@pytest.mark.parametrize("name", ["out.jsonl", "folder"])
def test_there_and_back(logs: Path, tmp_path: Path, prices: Layers, name: str) -> None:
    rows = [answer("a", 0, m5=6400), answer("b", 60, read=6400, m5=640, output=50)]
    other = answer("z", 5, m5=128, row={"sessionId": "other"})
    path = tmp_path / name
    assert write_traces(export(logs, *rows, other), path) == 2
    back = read_traces([path], start=1e9)
    expected = {one.main for one in read(logs).messages}
    assert {one.main for one in back} == expected
    assert sorted(one.time for one in back) == [1e9, 1e9, 1e9 + 60]
    assert len(list(turns(back, []))) == 3


def test_the_figures_of_a_known_trace(tmp_path: Path) -> None:
    """Session 12 of the public collection: 14 requests with 649,460 tokens in, of which 583,744 in
    blocks sent before, and 4,130 out. Here they are spread evenly; what they cost is the same."""
    shared, fresh = list(range(702)), 1000
    requests: list[dict[str, Any]] = [{"in": 702 * 64, "out": 4130, "hash_ids": shared}]
    for i in range(13):
        blocks, new = 702 if i < 8 else 701, 1600 if i == 0 else 1599
        ids = [*shared[:blocks], *range(fresh, fresh + 25)]
        fresh += 25
        requests.append({"t": 12.0 * i, "in": blocks * 64 + new, "out": 0, "hash_ids": ids})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"models": ["claude-opus-4-5-20251101"], "requests": requests}))
    found = read_traces([path], start=1e9)
    assert sum(one.main.prompt for one in found) == 649_460
    assert sum(one.main.read for one in found) == 583_744
    rates = Rates(input=5, output=25, read=0.5, write_5m=6.25)
    prices = PriceFile("list", "", {"claude-opus-4-5": (Entry(0.0, rates),)})
    (row,) = grouped(found, "session", prices, zone=None)
    assert row.bill.uncached == pytest.approx(3.35, abs=0.001)
    assert row.bill.total == pytest.approx(0.806, abs=0.0005)


def test_a_trace_with_prices(tmp_path: Path, prices: Layers) -> None:
    requests = [
        {"t": 0.0, "in": 150, "out": 10, "hash_ids": [7, 8, 9]},
        {"t": 4.5, "in": 260, "out": 20, "hash_ids": [7, 8, 9, 20, 21]},
        {"t": 400, "in": 200, "out": 30, "hash_ids": [7, 8, 99, 20]},
        {"t": 500, "in": 100, "out": 5, "hash_ids": [7, 8]},
        {"t": 501, "in": 128, "out": 5, "hash_ids": [8, 7]},
    ]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"id": "one", "models": [OPUS], "requests": requests}))
    found = read_traces([path], start=1e9)
    # Whole blocks are read, but never more than the prompt; a block elsewhere is another block.
    assert [one.main.read for one in found] == [0, 192, 128, 100, 0]
    assert [one.main.write_5m for one in found] == [150, 68, 72, 0, 128]
    (row,) = grouped(found, "session", prices, zone=None)
    paid = (418 * 6.25 + 420 * 0.5 + 70 * 25) / 1e6
    assert (row.bill.total, row.bill.uncached) == (
        pytest.approx(paid), pytest.approx((838 * 5 + 70 * 25) / 1e6)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "object"),
        ('{"requests": 3}', "requests"),
        ('{"requests": [3]}', "requests"),
        ('{"requests": [{"in": -1}]}', "in must"),
        ('{"requests": [{"in": 1e3}]}', "in must"),
        ('{"requests": [{"in": 10000000000}]}', "in must"),
        ('{"requests": [{"in": 1, "hash_ids": "abc"}]}', "hash_ids"),
        ('{"requests": [{"in": 1, "t": -1}]}', "t must"),
        ('{"requests": [{"in": 1, "t": NaN}]}', "t must"),
        ('{"requests": [{"in": 1, "t": 1' + "0" * 400 + "}]}", "t must"),
        ('{"requests": [], "block_size": 99999999}', "block_size"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=hint):
        read_traces([path], start=0)


def test_traces_of_one_name_are_sessions_of_their_own(tmp_path: Path) -> None:
    """Exports number their traces alike, and a trace need not have a name."""
    trace = {"id": "session-0001", "requests": [{"t": 0.0, "in": 640, "hash_ids": [1, 2]}]}
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        path.write_text(json.dumps(trace))
    unnamed = tmp_path / "c.jsonl"
    unnamed.write_text('{"requests": [{"in": 5}]}\n' * 2)
    found = read_traces([*paths, unnamed], start=0)
    assert len({one.session for one in found}) == len({one.id for one in found}) == 4
    assert len({turn.gap_seconds for turn in turns(found, [])}) == 1  # all are first requests


def test_names_in_a_trace_cannot_write_to_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(
        r"""{"id": "a\u001b[2J\ud800", "models": ["\u001bm"], "requests": [{"in": 1}]}"""
    )
    (one,) = read_traces([path], start=0)
    assert (one.session, one.model) == ("a[2J", "m")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_traces([tmp_path / "none.json"], start=0)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_traces([], tmp_path / "none" / "out.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_traces([], tmp_path / "file")
