"""The same load with one mechanism off: the tokens stay the same, the work does not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.ablation import (
    ALL_ON,
    ALL_SCORES,
    NO_CACHE,
    NO_COPY_ON_WRITE,
    NO_KERNELS,
    SWITCHED,
    VARIANTS,
    Rounds,
    ablate,
    check_options,
    tight_blocks,
)
from octavo.bench.datasets import GeneratedSharedPrefix, Prompt
from octavo.bench.result import Result
from octavo.core.errors import ConfigError
from octavo.engine.build import Built
from tests.bench.conftest import PLAIN_IDS
from tests.engine.tiny import built

SHAPE = GeneratedSharedPrefix(num_groups=2, prompts_per_group=10, system_prompt_len=96,
                              question_len=10, output_len=10, range_ratio=0.8)  # fmt: skip
PROMPTS = SHAPE.prompts(random.Random(0), PLAIN_IDS)
SEATS = 4
ROUNDS = Rounds(max_tokens=160, num_iters=1)


@pytest.fixture(scope="module")
def result(tiny_folder: Path) -> Result:
    # Room for one system prompt more, so that two requests can compute the same one.
    pool = 6 + tight_blocks(PROMPTS, block_tokens=16, seats=SEATS, groups=1)

    def open_with(changes: Mapping[str, Any]) -> Built:
        if "power_of_two" in changes.values():
            raise ConfigError("it does not start")
        options = {"skip_tokenizer_init": True, "max_num_seqs": SEATS, "num_blocks": pool}
        return built(tiny_folder, **{**options, "attention_backend": "torch", **changes})

    return ablate(open_with, PROMPTS, ROUNDS, settings={})


def test_forks_that_share_nothing_copy_more(tiny_folder: Path) -> None:
    copied = {}

    def open_with(changes: Mapping[str, Any]) -> Built:
        opened = built(tiny_folder, skip_tokenizer_init=True, max_num_seqs=SEATS, **changes)
        copied[tuple(changes)] = opened.engine
        return opened

    result = ablate(open_with, PROMPTS[:3], replace(ROUNDS, choices=3), settings={})
    wanted = 3 * sum(one.output_tokens for one in PROMPTS[:3])
    for figures in result.figures.values():
        assert wanted <= figures["output_tokens"] <= wanted + 3 * 3  # they end a step apart
    some, all_of_them = (
        copied[tuple(one.options)].stats().copied_blocks for one in (NO_CACHE, NO_COPY_ON_WRITE)
    )
    assert all_of_them > some


def test_every_variant_answers_the_whole_load(result: Result) -> None:
    started = [one.name for one in VARIANTS if one.name != "powers of two reserved"]
    assert list(result.figures) == [ALL_ON, *started, ALL_SCORES.name]
    for figures in result.figures.values():
        assert (figures["completed"], figures["failed"]) == (20, 0)
        assert figures["output_tokens"] == sum(one.output_tokens for one in PROMPTS)


def test_the_work_shows_what_is_off(result: Result) -> None:
    figures = result.figures
    n_prompt = sum(len(one.token_ids) for one in PROMPTS)
    all_on, no_cache = figures[ALL_ON], figures["no prefix cache"]
    # Both system prompts are computed once and read nine times.
    assert all_on["saved_prefill_tokens"] == 18 * 96
    assert no_cache["saved_prefill_tokens"] == 0
    assert no_cache["computed_tokens"] >= all_on["computed_tokens"] + 18 * 96
    assert no_cache["input_tokens"] == all_on["input_tokens"] == n_prompt
    assert figures["no in-flight sharing"]["computed_tokens"] > all_on["computed_tokens"]
    assert figures["max_tokens reserved"]["steps"] > all_on["steps"]
    assert figures["no KV cache"]["computed_tokens"] > 5 * no_cache["computed_tokens"]
    assert figures["no KV cache"]["steps"] == no_cache["steps"]


def test_what_did_not_start_or_cannot_be_switched_is_named(result: Result) -> None:
    notes = "\n".join(result.notes)
    assert "powers of two reserved: it does not start" in notes
    assert f"{NO_KERNELS.name}: they are not used here" in notes
    assert f"{NO_COPY_ON_WRITE.name}: nothing forks" in notes
    assert "no KV cache: × is over no prefix cache" in notes


def test_the_table_has_a_row_for_each(result: Result) -> None:
    (table,) = result.tables
    assert [row[0] for row in table.rows] == list(result.figures)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.rows[0][2] == "1.00"


def test_a_pool_that_just_suffices() -> None:
    head = tuple(range(32))
    prompts = [Prompt((*head, 100 + i), 16) for i in range(5)]
    # Two blocks in common; each then holds 1 + 16 more tokens, which take two.
    assert tight_blocks(prompts, block_tokens=16, seats=3, groups=1) == 2 + 3 * 2
    assert tight_blocks(prompts, block_tokens=16, seats=9, groups=2) == 2 * (2 + 5 * 2)
    assert tight_blocks(prompts[:1], block_tokens=16, seats=9, groups=1) == 4


@pytest.mark.parametrize("name", SWITCHED)
def test_options_that_it_sets_itself_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_options({name: True})
