"""The sweep over token budgets: its points, its window of time, its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.record import Record
from octavo.bench.sweep import SweepSettings, budgets, gaps_within, sweep
from octavo.core.errors import ConfigError
from octavo.engine.build import Built
from tests.bench.conftest import PLAIN_IDS
from tests.engine.tiny import assert_empty, built


def settings(**changes: int) -> SweepSettings:
    sizes = {"num_streams": 2, "num_prompts": 2, "input_len": 60, "stream_len": 100, "seed": 0}
    return SweepSettings(**{**sizes, **changes})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("256..2048", [256, 512, 1024, 2048]),
        ("256..1000", [256, 512]),
        ("900,300", [300, 900]),
        ("64", [64]),
    ],
)
def test_budgets(text: str, found: list[int]) -> None:
    assert budgets(text) == found


@pytest.mark.parametrize("text", ["", "8..4", "0..4", "0", "a", "1..", "1,,2", "-1", "1.5"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        budgets(text)


def test_only_gaps_that_end_in_the_window_count() -> None:
    record = Record(prompt_tokens=1, sent_at=0.0, piece_times=[1.0, 2.0, 4.0, 7.0, 11.0])
    assert gaps_within(record, 2.0, 7.0) == [2.0, 3.0]
    assert gaps_within(record, 1.5, 2.5) == [1.0]


def test_smaller_budgets_give_the_streams_more_turns(tiny_folder: Path) -> None:
    opened: list[Built] = []

    def open_with(budget: int) -> Built:
        opened.append(
            built(tiny_folder, skip_tokenizer_init=True, max_num_seqs=4,
                  max_num_batched_tokens=budget)
        )  # fmt: skip
        return opened[-1]

    result = sweep(open_with, [34, 128], settings(), vocabulary=PLAIN_IDS)
    assert list(result.figures) == ["34", "128"]
    (table,) = result.tables
    assert [row[0] for row in table.rows] == ["34", "128"]
    # Beside two streams a prompt of 60 tokens takes two steps at a budget of 34, one at 128.
    small, large = (one.engine.stats().steps for one in opened)
    assert small - large == 2 * (2 - 1)
    for figures in result.figures.values():
        assert figures["itl_ms"]["p99"] <= figures["itl_ms"]["max"]
        assert figures["ttft_ms"]["median"] > 0
    for one in opened:
        assert_empty(one.engine)


def test_a_stream_that_ends_too_early_is_an_error(tiny_folder: Path) -> None:
    def open_with(budget: int) -> Built:
        return built(tiny_folder, skip_tokenizer_init=True, max_num_seqs=4,
                     max_num_batched_tokens=budget)  # fmt: skip

    with pytest.raises(ConfigError, match="stream_len"):
        sweep(open_with, [12], settings(stream_len=8), vocabulary=PLAIN_IDS)
    with pytest.raises(ConfigError, match="5000 tokens"):
        sweep(open_with, [12], settings(input_len=5000), vocabulary=PLAIN_IDS)
