"""Choosing on the kernels, against the same choice in torch."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from octavo.compute import torch_chooser
from octavo.compute.choice import NOT_FINITE, NOTHING_LEFT, Draw
from octavo.compute.native.chooser import NativeChooser
from octavo.compute.native.library import Workers
from octavo.compute.philox import uniforms
from octavo.core.sampling import SamplingParams

VOCABS = [1, 5, 255, 257, 700, 3000]


def draw(position: int = 0, choice: int = 0, **params: Any) -> Draw:
    return Draw(SamplingParams(**{"seed": 1, **params}), choice, position)


def random_draws(n: int, vocab: int, *, seed: int = 0) -> list[Draw]:
    rng = random.Random(seed)
    return [
        draw(
            position=rng.choice([i, i + (1 << 33)]),
            choice=rng.randrange(4),
            seed=rng.choice([i, -i, i << 40]),
            temperature=rng.choice([0.0, 1e-40, 0.5, 1.0, 2.0, 1000.0]),
            top_k=rng.choice([0, 0, 1, 3, 60, vocab]),
            top_p=rng.choice([1.0, 1.0, 0.95, 0.5, 1e-9]),
            min_p=rng.choice([0.0, 0.0, 0.01, 0.4, 1.0]),
        )
        for i in range(n)
    ]


def random_logits(n: int, vocab: int, *, seed: int = 0) -> torch.Tensor:
    """Half of the rows have many equal values."""
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * 4
    logits[::2] = logits[::2].round()
    return logits


def nearly_tied(logits: torch.Tensor, one: Draw, tokens: tuple[int, int]) -> bool:
    """Whether rounding may decide between two tokens: the uniform number lies on their border, or
    the border of the kept set does, in either order that a choice may go through."""
    weights = ((logits.double() - logits.max()) / max(one.params.temperature, 1e-38)).exp()
    by_rank = weights[logits.sort(descending=True, stable=True).indices]
    cumulative = torch.cat((by_rank.cumsum(0), weights.cumsum(0))) / weights.sum()
    uniform = float(uniforms([(one.params.seed or 0, one.choice, one.position)])[0])
    marks = torch.tensor([uniform, uniform * one.params.top_p, one.params.top_p])
    near = (cumulative[:, None] - marks).abs().min() < 1e-5
    return bool(near) and abs(float(weights[tokens[0]] - weights[tokens[1]])) < 1


@pytest.mark.parametrize("vocab", VOCABS)
def test_choices_are_those_of_torch(workers: Workers, vocab: int) -> None:
    n = 300
    logits, draws = random_logits(n, vocab), random_draws(n, vocab)
    found = NativeChooser(workers, vocab)(logits, draws)
    wanted = torch_chooser.choose(logits, draws)
    different = [i for i in range(n) if found[i] != wanted[i]]
    for i in different:
        assert nearly_tied(logits[i], draws[i], (found[i], wanted[i])), draws[i]
    assert len(different) <= 2


def test_a_real_vocabulary(workers: Workers) -> None:
    """As wide as a model's, as peaked as a model's: every filter, and no row left to torch."""
    vocab, n = 49_152, 40
    logits = torch.randn(n, vocab, generator=torch.Generator().manual_seed(1)) * 3
    filters: list[dict[str, Any]] = [
        {"top_k": 50}, {"top_p": 0.9}, {"top_k": 20, "top_p": 0.8}, {"min_p": 0.05}, {},
    ]  # fmt: skip
    draws = [draw(i, **filters[i % len(filters)], temperature=0.7) for i in range(n)]
    assert NativeChooser(workers, vocab)(logits, draws) == torch_chooser.choose(logits, draws)


def test_the_random_numbers_are_the_same(workers: Workers) -> None:
    """Of equal logits the token tells the uniform number to 1 in the size of the vocabulary."""
    vocab = 1 << 16
    draws = [
        draw(position, choice, seed=seed)
        for position, choice, seed in itertools.product((0, 5, 1 << 40), (0, 3), (0, -1, 1 << 63))
    ]
    found = NativeChooser(workers, vocab)(torch.zeros(len(draws), vocab), draws)
    numbers = uniforms([(d.params.seed or 0, d.choice, d.position) for d in draws])
    assert np.abs(np.array(found) / vocab - numbers).max() < 3e-5


def test_rows_that_need_more_room_are_chosen_all_the_same(workers: Workers) -> None:
    vocab = 20_000
    draws = [draw(i, top_p=0.95, temperature=t) for i, t in enumerate([1.0, 50.0])]
    draws.append(draw(2, top_k=19_000))
    logits = random_logits(3, vocab)
    assert NativeChooser(workers, vocab)(logits, draws) == torch_chooser.choose(logits, draws)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 255, 256, 699])
def test_a_broken_row_is_told_from_its_neighbours(workers: Workers, bad: float, place: int) -> None:
    logits = random_logits(8, 700)
    draws: list[Draw | None] = [None, *random_draws(7, 700)]
    chooser = NativeChooser(workers, 700)
    wanted = chooser(logits, draws)
    logits[[0, 3], place] = bad
    wanted[0] = wanted[3] = NOT_FINITE
    assert chooser(logits, draws) == wanted


def test_forbidden_tokens_are_never_chosen(workers: Workers) -> None:
    n, vocab = 300, 700
    logits = random_logits(n, vocab)
    allowed = torch.rand(n, vocab, generator=torch.Generator().manual_seed(2)) < 0.02
    allowed[0] = False
    logits[~allowed] = -math.inf
    found = NativeChooser(workers, vocab)(logits, random_draws(n, vocab), shaped=True)
    assert found[0] == NOTHING_LEFT
    assert all(allowed[i, token] for i, token in enumerate(found) if i)


def test_a_row_does_not_depend_on_its_neighbours(workers: Workers) -> None:
    logits, draws = random_logits(300, 700), random_draws(300, 700)
    chooser = NativeChooser(workers, 700)
    together = chooser(logits, draws)
    assert together == [chooser(logits[i : i + 1], [draws[i]])[0] for i in range(300)]
