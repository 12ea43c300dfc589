"""Data sets: shapes, sharing, repeatability, and refusals by name."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from octavo.bench.datasets import DATASETS, MOST_PROMPTS, Prompt, dataset
from octavo.core.errors import ConfigError

IDS = range(10, 5000)


def drawn(name: str, *, seed: int = 0, **sizes: Any) -> list[Prompt]:
    return dataset(name, sizes).prompts(random.Random(seed), IDS)


def test_random_prompts_have_the_lengths_asked_for() -> None:
    prompts = drawn("random", num_prompts=5, input_len=40, output_len=7)
    assert [(len(p.token_ids), p.output_tokens) for p in prompts] == [(40, 7)] * 5
    assert len({p.token_ids for p in prompts}) == 5
    assert all(i in IDS for p in prompts for i in p.token_ids)


def test_range_ratio_spreads_lengths_to_both_ends() -> None:
    prompts = drawn("random", num_prompts=400, input_len=10, output_len=4, range_ratio=0.5)
    assert {len(p.token_ids) for p in prompts} == set(range(5, 16))
    assert {p.output_tokens for p in prompts} == set(range(2, 7))


def test_prefix_repetition_repeats_each_prefix_equally_often() -> None:
    prompts = drawn("prefix_repetition", num_prompts=12, num_prefixes=3, prefix_len=20,
                    suffix_len=9, output_len=2)  # fmt: skip
    prefixes = Counter(p.token_ids[:20] for p in prompts)
    assert sorted(prefixes.values()) == [4, 4, 4]
    assert len({p.token_ids[20:] for p in prompts}) == 12
    assert {len(p.token_ids) for p in prompts} == {29}


def test_more_prefixes_than_prompts_use_one_each() -> None:
    prompts = drawn("prefix_repetition", num_prompts=2, num_prefixes=5)
    assert len({p.token_ids[:256] for p in prompts}) == 2


def test_groups_share_their_system_prompt() -> None:
    prompts = drawn("generated-shared-prefix", num_groups=3, prompts_per_group=4,
                    system_prompt_len=30, question_len=5, output_len=2)  # fmt: skip
    systems = [p.token_ids[:30] for p in prompts]
    assert sorted(Counter(systems).values()) == [4, 4, 4]
    assert len({p.token_ids for p in prompts}) == 12
    assert systems != sorted(systems, key=systems.index)  # shuffled: groups are not in a row


def test_questions_and_outputs_of_a_group_may_vary() -> None:
    prompts = drawn("generated-shared-prefix", num_groups=1, prompts_per_group=300,
                    system_prompt_len=30, question_len=4, output_len=10,
                    range_ratio=0.5)  # fmt: skip
    assert len({p.token_ids[:30] for p in prompts}) == 1
    assert {len(p.token_ids) for p in prompts} == set(range(32, 37))
    assert {p.output_tokens for p in prompts} == set(range(5, 16))


@pytest.mark.parametrize("name", DATASETS)
def test_the_seed_decides_the_load(name: str) -> None:
    assert drawn(name, seed=4) == drawn(name, seed=4)
    assert drawn(name, seed=4) != drawn(name, seed=5)


@pytest.mark.parametrize(
    ("name", "sizes", "param"),
    [
        ("sharegpt", {}, "dataset_name"),
        ("random", {"prefix_len": 4}, "prefix_len"),
        ("prefix_repetition", {"input_len": 4}, "input_len"),
        ("generated-shared-prefix", {"num_prompts": 4}, "num_prompts"),
        ("random", {"num_prompts": 0}, "num_prompts"),
        ("random", {"num_prompts": MOST_PROMPTS + 1}, "num_prompts"),
        ("random", {"range_ratio": 1.0}, "range_ratio"),
        ("random", {"range_ratio": -0.1}, "range_ratio"),
        ("random", {"range_ratio": float("nan")}, "range_ratio"),
        ("random", {"num_prompts": 1 << 19}, "num_prompts"),
        ("prefix_repetition", {"num_prefixes": 1 << 19}, "num_prompts"),
        ("generated-shared-prefix", {"num_groups": 1 << 19}, "num_groups"),
    ],
)
def test_refusals_name_the_flag(name: str, sizes: dict[str, Any], param: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dataset(name, sizes)
    assert caught.value.param == param
    assert param in caught.value.message
