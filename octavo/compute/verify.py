"""Drafts against the model: every position a draft claims is sampled, and what agrees is kept.

A position is sampled exactly as it would be without drafts: from its own logits, with the random
number of its own (seed, choice, position). A draft is right if it is that token. So drafts change
neither the answer nor its distribution; a guess that is certain of one token is accepted with that
token's probability, which is also what rejection sampling would give it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from octavo.core.batch import Row, RowResult
from octavo.core.sampling import StepScores


class Pick(NamedTuple):
    """One position to sample: `position` is the index of the token being chosen."""

    row: Row
    position: int


def picks(rows: Sequence[Row]) -> list[Pick]:
    """Per sampling row, the position after its known tokens and that after each draft, in order."""
    return [
        Pick(row, position)
        for row in rows
        if row.samples
        for position in range(row.end - len(row.drafts), row.end + 1)
    ]


def agreed(row: Row, sampled: Iterator[RowResult]) -> RowResult:
    """The row's result from those of its picks: the drafts that were right, and one token more."""
    results = [next(sampled) for _ in range(len(row.drafts) + 1)]
    if not row.drafts or results[0].error is not None:
        return results[0]
    tokens: list[int] = []
    kept: list[RowResult] = []
    for i, result in enumerate(results):
        if result.error is not None:
            break  # the next step meets it again, as the first position of its row
        kept.append(result)
        tokens += result.tokens
        if i == len(row.drafts) or tokens[-1] != row.drafts[i]:
            break
    scores = [result.scores for result in kept if result.scores is not None]
    generated = tuple(each for one in scores for each in one.generated)
    return RowResult(tuple(tokens), scores=StepScores(generated=generated) if scores else None)
