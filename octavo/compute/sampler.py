"""Logits -> results. Owns the order of filters and where randomness comes from; knows no model.

Order of all that shapes a choice: logit_bias, allowed_token_ids, bad_words and min_tokens; then
penalties, repetition before frequency and presence (all these are `shaper`'s); then temperature,
then top_k, then top_p of what top_k left, then min_p (these are a `Chooser`'s). Every filter keeps
a prefix of the tokens sorted by (probability down, id up). At temperature 0 the best token is
taken, of equal ones the lowest. Log-probabilities are those of the logits as the model gave them.

One uniform number per row, a function of (seed, choice, position), is looked up in the row's
cumulative distribution. Gumbel noise would do without the sum, but takes a random number for each
token of the vocabulary: some forty integer passes over it where this takes one sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from octavo.compute.choice import NOT_FINITE, NOTHING_LEFT, Chooser, Draw
from octavo.compute.likeliest import token_scores
from octavo.compute.torch_chooser import choose as choose_in_torch
from octavo.core.batch import RowResult
from octavo.core.sampling import StepScores

BROKEN = (
    "the model produced logits that are not finite numbers for this request, so no token can be "
    "chosen; its weights may be damaged or its number format may overflow: try dtype float32"
)
NONE_LEFT = (
    "no token is left to choose: allowed_token_ids, bad_words and min_tokens together forbid them "
    "all; allow more"
)
_ERRORS = {NOT_FINITE: BROKEN, NOTHING_LEFT: NONE_LEFT}


class Shaped(NamedTuple):
    """Rows (by number) whose tokens are chosen from other logits, float32 [len(rows), vocab]."""

    rows: list[int]
    logits: torch.Tensor


def sample(
    logits: torch.Tensor,
    draws: Sequence[Draw],
    *,
    shaped: Shaped | None = None,
    choose: Chooser = choose_in_torch,
) -> list[RowResult]:
    """One result per row of logits float32 [rows, vocab]: its token and, if asked, StepScores.

    A row whose logits are not all finite, or whose shaped ones leave no token, yields an error; the
    others are unaffected.
    """
    tokens = _choose(logits, draws, shaped=shaped, choose=choose)
    scored = [
        i for i, draw in enumerate(draws) if draw.params.logprobs is not None and tokens[i] >= 0
    ]
    scores = _score_rows(logits, tokens, scored=scored, draws=draws)
    return [
        RowResult((token,), scores=scores.get(i)) if token >= 0 else RowResult(error=_ERRORS[token])
        for i, token in enumerate(tokens)
    ]


def _choose(
    logits: torch.Tensor, draws: Sequence[Draw], *, shaped: Shaped | None, choose: Chooser
) -> list[int]:
    """Tokens of all rows, or why there is none. Of a shaped row the model's own logits must be
    sound too."""
    if shaped is None:
        return choose(logits, draws)
    elsewhere = set(shaped.rows)
    plain = [None if i in elsewhere else draw for i, draw in enumerate(draws)]
    tokens = choose(logits, plain)
    found = choose(shaped.logits, [draws[i] for i in shaped.rows], shaped=True)
    for i, token in zip(shaped.rows, found, strict=True):
        if tokens[i] != NOT_FINITE:
            tokens[i] = token
    return tokens


def _score_rows(
    logits: torch.Tensor, tokens: list[int], *, scored: list[int], draws: Sequence[Draw]
) -> dict[int, StepScores]:
    if not scored:
        return {}
    index = torch.tensor(scored, device=logits.device)
    chosen = torch.tensor([tokens[i] for i in scored], device=logits.device)
    counts = [draws[i].params.logprobs or 0 for i in scored]
    found = token_scores(logits[index], chosen, counts=counts)
    return {i: StepScores(generated=(each,)) for i, each in zip(scored, found, strict=True)}
