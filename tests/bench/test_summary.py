"""Definitions of latencies, rates, percentiles and goodput, on times written by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.bench.record import Record
from octavo.bench.spread import Spread
from octavo.bench.summary import objectives, summarise
from octavo.core.errors import ConfigError


def record(sent: float, *pieces: float, tokens: int | None = None, cached: int = 0) -> Record:
    return Record(
        prompt_tokens=10,
        sent_at=sent,
        piece_times=list(pieces),
        output_tokens=len(pieces) if tokens is None else tokens,
        cached_tokens=cached,
        ended_at=pieces[-1],
    )


def test_latencies_of_one_request() -> None:
    one = record(1.0, 1.5, 1.7, 2.3)
    assert one.ttft_seconds == pytest.approx(0.5)
    assert one.e2e_seconds == pytest.approx(1.3)
    assert one.tpot_seconds == pytest.approx(0.4)
    assert one.itl_seconds == pytest.approx([0.2, 0.6])


def test_several_tokens_in_a_piece_count_in_tpot_and_are_one_gap() -> None:
    one = record(0.0, 1.0, 2.0, tokens=5)
    assert one.tpot_seconds == pytest.approx(0.25)
    assert one.itl_seconds == pytest.approx([1.0])


def test_one_token_has_neither_tpot_nor_itl() -> None:
    one = record(0.0, 1.0)
    assert (one.tpot_seconds, one.itl_seconds) == (None, [])


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 500])
def test_percentiles_are_numpys(n: int) -> None:
    source = random.Random(n)
    values = [source.expovariate(1.0) for _ in range(n)]
    spread = Spread(values)
    for q in (0, 10, 25, 50, 75, 90, 99, 100):
        assert spread.percentile_ms(q) == pytest.approx(1e3 * np.percentile(values, q))
    assert spread.mean_ms == pytest.approx(1e3 * np.mean(values))
    assert spread.max_ms == pytest.approx(1e3 * max(values))


def test_nothing_measured_is_none_not_zero() -> None:
    assert set(Spread([]).figures().values()) == {None}


def test_rates_and_hit_rate() -> None:
    failed = Record(prompt_tokens=10, sent_at=0.5, error="HTTP 503", ended_at=4.0)
    summary = summarise([record(0.0, 1.0, 2.0, cached=8), record(1.0, 2.0, 3.0, 4.0), failed])
    figures = summary.figures()
    assert (figures["requests"], figures["completed"], figures["failed"]) == (3, 2, 1)
    assert figures["errors"] == {"HTTP 503": 1}
    assert figures["duration_s"] == pytest.approx(4.0)
    assert (figures["input_tokens"], figures["output_tokens"]) == (20, 5)
    assert figures["request_throughput_per_s"] == pytest.approx(0.5)
    assert figures["output_token_throughput_per_s"] == pytest.approx(1.25)
    assert figures["total_token_throughput_per_s"] == pytest.approx(6.25)
    assert figures["saved_prefill_tokens"] == 8
    assert figures["prefix_hit_rate"] == pytest.approx(0.4)
    assert figures["ttft_ms"]["mean"] == pytest.approx(1000)
    assert "request_goodput_per_s" not in figures


def test_a_request_that_ended_without_a_token_has_failed() -> None:
    summary = summarise([Record(prompt_tokens=3, sent_at=0.0, ended_at=1.0)])
    assert (summary.completed, dict(summary.errors)) == (0, {"it ended without a token": 1})
    assert summary.figures()["prefix_hit_rate"] is None


def test_goodput_counts_requests_that_meet_every_objective() -> None:
    records = [record(0.0, 0.1, 0.2), record(0.0, 0.1, 1.1), record(0.0, 0.9, 1.0)]
    found = {
        words: summarise(records, goodput=objectives([words])).good
        for words in ("ttft:200", "tpot:200", "ttft:200 tpot:200", "e2el:1050,ttft:1000")
    }
    assert found == {"ttft:200": 2, "tpot:200": 2, "ttft:200 tpot:200": 1, "e2el:1050,ttft:1000": 2}


def test_a_single_token_misses_no_tpot_objective() -> None:
    assert summarise([record(0.0, 0.1)], goodput={"tpot": 0.001}).good == 1


@pytest.mark.parametrize("word", ["ttft", "ttft:", "ttft:x", "itl:5", "ttft:-1", "ttft:1e9", "x:1"])
def test_wrong_objectives_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="goodput"):
        objectives([word])


def test_an_objective_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        objectives(["ttft:1", "ttft:2"])
