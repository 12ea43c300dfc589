"""Choosing tokens in plain torch, on any device: what every row's choice is held against.

Weights are float32 functions of one logit each, added in a fixed order, so neither the neighbours
nor the way a row's candidates were found move a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from octavo.compute.choice import NOT_FINITE, NOTHING_LEFT, Draw
from octavo.compute.likeliest import CHUNK, best, likeliest
from octavo.compute.philox import uniforms

_FIRST_CANDIDATES = 256  # enough for top_p alone in nearly every row; the others are sorted in full


def choose(
    logits: torch.Tensor, draws: Sequence[Draw | None], *, shaped: bool = False
) -> list[int]:
    """`octavo.compute.choice.Chooser`."""
    if shaped:
        sound: list[bool] = (logits.amax(dim=-1) > -math.inf).tolist()
    else:
        sound = logits.sum(dim=-1).isfinite().tolist()  # one NaN or infinity makes the sum one
    tokens = best(logits)
    random = [
        (i, draw)
        for i, draw in enumerate(draws)
        if draw is not None and draw.params.temperature > 0 and sound[i]
    ]
    if random:
        which = [i for i, _ in random]
        rows = logits if len(which) == len(draws) else logits[which]
        tokens[which] = _sample_rows(rows, [draw for _, draw in random])
    failure = NOTHING_LEFT if shaped else NOT_FINITE
    return [t if fine else failure for t, fine in zip(tokens.tolist(), sound, strict=True)]


def _sample_rows(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Token ids [rows]; every row has a temperature above 0 and finite logits."""
    settings = _Settings.of(draws, vocab=logits.shape[1], device=logits.device)
    tokens = torch.empty(len(draws), dtype=torch.int64, device=logits.device)
    limited = [draw.params.top_k > 0 for draw in draws]
    nucleus = [draw.params.top_p < 1 for draw in draws]
    unsorted = [i for i in range(len(draws)) if not limited[i] and not nucleus[i]]
    if unsorted:
        tokens[unsorted] = _pick_unsorted(logits[unsorted], settings.rows(unsorted))
    by_rank = [i for i in range(len(draws)) if limited[i]]
    if by_rank:
        most = max(draws[i].params.top_k for i in by_rank)
        tokens[by_rank] = _pick_sorted(logits[by_rank], settings.rows(by_rank), most)[0]
    by_mass = [i for i in range(len(draws)) if nucleus[i] and not limited[i]]
    if by_mass:
        picked, whole = _pick_sorted(logits[by_mass], settings.rows(by_mass), _FIRST_CANDIDATES)
        tokens[by_mass] = picked
        left = [i for i, done in zip(by_mass, whole.tolist(), strict=True) if not done]
        if left:
            everything = logits.shape[1]
            tokens[left] = _pick_sorted(logits[left], settings.rows(left), everything)[0]
    return tokens


class _Settings(NamedTuple):
    """Columns [rows, 1], float64 but for top_k int64 (the vocabulary where it keeps all)."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    uniform: torch.Tensor

    @classmethod
    def of(cls, draws: Sequence[Draw], *, vocab: int, device: torch.device) -> _Settings:
        params = [draw.params for draw in draws]
        keys = []
        for draw in draws:
            assert draw.params.seed is not None  # resolved when the request was made
            keys.append((draw.params.seed, draw.choice, draw.position))
        floats = torch.tensor(
            [
                [each.temperature for each in params],
                [each.top_p for each in params],
                [each.min_p for each in params],
                uniforms(keys).tolist(),
            ],
            dtype=torch.float64,
        ).to(device)
        top_k = torch.tensor([min(p.top_k, vocab) or vocab for p in params]).to(device)
        temperature, top_p, min_p, uniform = floats.unsqueeze(-1)
        return cls(temperature, top_k.unsqueeze(-1), top_p, min_p, uniform)

    def rows(self, which: list[int]) -> _Settings:
        return _Settings(*(column[which] for column in self))


def _weights(
    logits: torch.Tensor, highest: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """exp((logit - highest) / temperature), float32: the likeliest token has weight 1."""
    divisor = temperature.float().clamp_(min=torch.finfo(torch.float32).tiny)  # 0 / 0 is NaN
    return (logits - highest).div_(divisor).exp_()


def _pick(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """First column [rows, 1] whose cumulative weight exceeds uniform · total."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    return _column(cumulative, uniform * cumulative[:, -1:])


def _column(cumulative: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """First column [rows, 1] above `target`, else the last one that added anything."""
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous())
    return torch.minimum(torch.searchsorted(cumulative, target, right=True), last)


def _chunk_sums(weights: torch.Tensor) -> torch.Tensor:
    """Sums of CHUNK neighbours each, float64 [rows, chunks]; fixed in size, so in order too."""
    padded = F.pad(weights, (0, -weights.shape[1] % CHUNK))
    return padded.view(weights.shape[0], -1, CHUNK).sum(-1).double()


def _pick_unsorted(logits: torch.Tensor, settings: _Settings) -> torch.Tensor:
    """Rows with temperature and min_p only: the set kept needs no order."""
    vocab = logits.shape[1]
    weights = _weights(logits, logits.amax(-1, keepdim=True), settings.temperature)
    weights.masked_fill_(weights < settings.min_p, 0.0)
    sums = _chunk_sums(weights).cumsum(-1)
    target = settings.uniform * sums[:, -1:]
    chunk = _column(sums, target)
    before = F.pad(sums, (1, 0)).gather(1, chunk)
    ids = (chunk * CHUNK + torch.arange(CHUNK, device=logits.device)).clamp_(max=vocab - 1)
    inside = weights.gather(1, ids).cumsum(-1, dtype=torch.float64)
    return ids.gather(1, _column(inside, target - before)).squeeze(-1)


def _pick_sorted(
    logits: torch.Tensor, settings: _Settings, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose among the `count` likeliest: (token ids [rows], whether the kept set was among them).

    A row with top_k needs `count` to cover it, and its top_p is of what top_k left; for the others
    top_p is of the whole vocabulary.
    """
    values, ids = likeliest(logits, count)
    weights = _weights(values, values[:, :1], settings.temperature).double()
    rank = torch.arange(values.shape[1], device=values.device)
    weights.masked_fill_(rank >= settings.top_k, 0.0)
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1:]
    everything = logits.shape[1]
    if values.shape[1] < everything and bool((settings.top_k == everything).any()):
        mass = _chunk_sums(_weights(logits, values[:, :1], settings.temperature)).sum(-1, True)
        total = torch.where(settings.top_k == everything, mass, total)
    wanted = settings.top_p * total
    # A token is kept while those before it have not reached the mass; the first one always is.
    weights.masked_fill_((cumulative - weights >= wanted) & (rank > 0), 0.0)
    weights.masked_fill_(weights < settings.min_p, 0.0)
    tokens = ids.gather(1, _pick(weights, settings.uniform)).squeeze(-1)
    complete = (cumulative[:, -1:] >= wanted) | (settings.top_k <= values.shape[1])
    return tokens, complete.squeeze(-1)
