"""Sampling against a slow reference in plain Python, and what a row must not depend on."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from octavo.compute import torch_chooser
from octavo.compute.choice import Draw
from octavo.compute.likeliest import best, likeliest
from octavo.compute.philox import philox4x32, uniforms
from octavo.compute.sampler import BROKEN, sample
from octavo.core.sampling import SamplingParams, TokenScores

VOCAB = 700


def draw(position: int = 0, choice: int = 0, **params: Any) -> Draw:
    return Draw(SamplingParams(**{"seed": 1, **params}), choice, position)


def kept_set(logits: list[float], params: SamplingParams) -> dict[int, float]:
    """Token id -> probability, by the documented order of filters, in float64."""
    top = max(logits)
    weights = {i: math.exp((x - top) / params.temperature) for i, x in enumerate(logits)}
    order = sorted(weights, key=lambda i: (-logits[i], i))
    if params.top_k:
        order = order[: params.top_k]
    total, mass, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if kept and mass >= params.top_p * total:
            break
        kept.append(i)
        mass += weights[i]
    kept = [i for i in kept if weights[i] >= params.min_p * weights[order[0]]]
    total = sum(weights[i] for i in kept)
    return {i: weights[i] / total for i in kept}


def sampled(logits: torch.Tensor, draws: list[Draw]) -> list[int]:
    return [result.tokens[0] for result in sample(logits, draws)]


def chi_square(counts: dict[int, int], wanted: dict[int, float], n: int) -> tuple[float, int]:
    """(statistic, degrees of freedom), rare tokens pooled."""
    pooled_count, pooled_p, statistic, cells = 0, 0.0, 0.0, 0
    for token, p in wanted.items():
        if n * p < 8:
            pooled_count, pooled_p = pooled_count + counts.get(token, 0), pooled_p + p
            continue
        statistic += (counts.get(token, 0) - n * p) ** 2 / (n * p)
        cells += 1
    if n * pooled_p >= 8:
        statistic += (pooled_count - n * pooled_p) ** 2 / (n * pooled_p)
        cells += 1
    return statistic, cells - 1


FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7},
    {"top_k": 5},
    {"top_k": 1},
    {"top_k": VOCAB + 5, "top_p": 0.5},
    {"top_p": 0.8},
    {"top_p": 1e-9},
    {"top_p": 0.999},
    {"min_p": 0.2},
    {"top_k": 40, "top_p": 0.7, "min_p": 0.05, "temperature": 1.3},
    {"top_p": 0.9, "min_p": 0.3, "temperature": 2.0},
]


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_the_distribution_is_the_reference_one(params: dict[str, Any]) -> None:
    n = 4000
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(5)) * 3
    wanted = kept_set(logits.tolist(), SamplingParams(**params))
    tokens: list[int] = []
    for begin in range(0, n, 500):
        draws = [draw(position, **params) for position in range(begin, begin + 500)]
        tokens += sampled(logits.expand(500, VOCAB), draws)
    counts = {token: tokens.count(token) for token in set(tokens)}
    assert counts.keys() <= wanted.keys()
    statistic, freedom = chi_square(counts, wanted, n)
    # Normal bound at about four and a half sigma; the seeds are fixed, so it cannot flicker.
    assert statistic <= freedom + 4.5 * math.sqrt(2 * freedom) + 1


@pytest.mark.parametrize("first_candidates", [4, 256])
def test_kept_sets_are_exact(first_candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform just below 1 takes the last token kept, one of 0 the first."""
    monkeypatch.setattr(torch_chooser, "_FIRST_CANDIDATES", first_candidates)
    rng = random.Random(3)
    for _ in range(60):
        params: dict[str, Any] = {
            "temperature": rng.choice([0.5, 1.0, 2.0]),
            "top_k": rng.choice([0, 1, 3, 60, VOCAB]),
            "top_p": rng.choice([1.0, 0.95, 0.5, 0.1]),
            "min_p": rng.choice([0.0, 0.01, 0.4, 1.0]),
        }
        logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(rng.randrange(99)))
        logits = (logits * 4).round() if rng.random() < 0.5 else logits * 3  # with many ties
        kept = kept_set(logits.tolist(), SamplingParams(**params))
        in_order = list(kept)
        if not params["top_k"] and params["top_p"] == 1.0:
            in_order.sort()
        low, high = (
            sampled_at(uniform, logits, params, monkeypatch) for uniform in (0.0, 1.0 - 2**-53)
        )
        assert low == in_order[0], params
        # What weighs less than the rounding of the sums (float32 within a chunk of a row without
        # top_k and top_p, else float64) may be passed over.
        after = in_order[in_order.index(high) + 1 :]
        exact = params["top_k"] or params["top_p"] < 1.0
        assert sum(kept[i] for i in after) < (1e-14 if exact else 1e-6), params


def sampled_at(
    uniform: float, logits: torch.Tensor, params: dict[str, Any], patch: pytest.MonkeyPatch
) -> int:
    patch.setattr(torch_chooser, "uniforms", lambda draws: np.full(len(draws), uniform))
    return sampled(logits[None], [draw(**params)])[0]


def test_greedy_takes_the_lowest_of_equal_tokens() -> None:
    for vocab in (5, 256, 257, 1000):
        logits = torch.zeros(3, vocab)
        logits[1, [vocab - 1, vocab // 2]] = 2.0
        logits[2, vocab - 1] = 1.0
        draws = [draw(temperature=0.0)] * 3
        assert sampled(logits, draws) == [0, vocab // 2, vocab - 1]
        assert best(logits).tolist() == logits.argmax(-1).tolist()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(24, VOCAB, generator=generator) * 2
    draws = [
        draw(position=i, choice=i % 3, **{**FILTERS[i % len(FILTERS)], "seed": i})
        for i in range(23)
    ]
    draws.append(draw(temperature=0.0, seed=None))
    together = sampled(logits, draws)
    alone = [sampled(logits[i : i + 1], [draws[i]])[0] for i in range(24)]
    assert together == alone
    order = list(range(24))
    random.Random(1).shuffle(order)
    assert sampled(logits[order], [draws[i] for i in order]) == [together[i] for i in order]


def test_seed_choice_and_position_each_matter() -> None:
    logits = torch.zeros(1, VOCAB)
    base = draw(seed=7, choice=1, position=2)
    variants = [
        draw(seed=8, choice=1, position=2),
        draw(seed=7, choice=2, position=2),
        draw(seed=7, choice=1, position=3),
        draw(seed=7 + (1 << 40), choice=1, position=2),
    ]
    taken = sampled(logits, [base])[0]
    assert sampled(logits, [base])[0] == taken
    assert all(sampled(logits, [each])[0] != taken for each in variants)


def test_a_tiny_temperature_is_greedy_not_broken() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    wanted = [int(logits.argmax())]
    for temperature in (1e-300, 1e-40, 1e-6):
        for params in ({}, {"top_k": 9}, {"top_p": 0.9}):
            assert sampled(logits, [draw(temperature=temperature, **params)]) == wanted


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_row_is_its_own_error(bad: float) -> None:
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(4))
    draws = [draw(i, temperature=t, logprobs=2) for i, t in enumerate([0.0, 0.0, 1.0, 1.0, 1.0])]
    wanted = sample(logits, draws)
    broken = logits.clone()
    broken[1, 3] = bad
    broken[3, 600] = bad
    results = sample(broken, draws)
    for i, result in enumerate(results):
        if i in (1, 3):
            assert (result.error, tuple(result.tokens), result.scores) == (BROKEN, (), None)
        else:
            assert result == wanted[i]


def test_scores_are_of_the_untouched_distribution() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(6))
    logits[0, 10] = logits[0, 20] = 9.0
    draws = [
        draw(temperature=0.0, logprobs=3),
        draw(temperature=2.0, top_k=4, logprobs=0),
        draw(temperature=0.0),
    ]
    results = sample(logits, draws)
    logprobs = logits.double().log_softmax(-1)
    assert results[2].scores is None
    for row in (0, 1):
        token, (scores,) = results[row].tokens[0], results[row].scores.generated
        assert isinstance(scores, TokenScores)
        order = sorted(range(VOCAB), key=lambda i: (-float(logits[row, i]), i))
        assert scores.chosen[0] == pytest.approx(float(logprobs[row, token]), abs=1e-5)
        assert scores.chosen[1] == order.index(token) + 1
        assert [i for i, _ in scores.top] == order[: (3, 0)[row]]
        for i, value in scores.top:
            assert value == pytest.approx(float(logprobs[row, i]), abs=1e-5)
    assert results[0].tokens[0] == 10
    assert [i for i, _ in results[0].scores.generated[0].top][:2] == [10, 20]


def test_likeliest_orders_equal_values_by_id() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 6, (8, 2000), generator=generator).float()
    logits[0] = torch.randn(2000, generator=generator)
    for count in (1, 7, 400, 1999, 5000):
        values, ids = likeliest(logits, count)
        for row in range(8):
            order = sorted(range(2000), key=lambda i: (-float(logits[row, i]), i))[:count]
            assert ids[row].tolist() == order
            assert torch.equal(values[row], logits[row, order])


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_words(counter: list[int], key: list[int], words: str) -> None:
    out = philox4x32(np.array([counter], dtype=np.uint64), np.array([key], dtype=np.uint64))
    assert [f"{word:08x}" for word in out[0]] == words.split()


def test_uniforms_are_in_range_and_use_every_seed_bit() -> None:
    values = uniforms([(seed, 0, position) for seed in range(50) for position in range(50)])
    assert ((values >= 0) & (values < 1)).all()
    assert len(set(values.tolist())) == 2500
    assert abs(values.mean() - 0.5) < 0.03
    assert uniforms([(-1, 0, 0)]) == uniforms([((1 << 64) - 1, 0, 0)])
