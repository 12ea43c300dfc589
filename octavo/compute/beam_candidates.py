"""The likeliest continuations of beams. Knows no groups and no sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.compute.likeliest import likeliest
from octavo.compute.sampler import BROKEN
from octavo.core.batch import Row, RowResult


def with_candidates(
    rows: Sequence[Row], logits: torch.Tensor, results: Sequence[RowResult]
) -> list[RowResult]:
    """`results` of rows that sample, those of beams replaced by what a beam reports.

    logits: float32 [rows, vocab] as the model gave them.
    """
    found = list(results)
    beams = [i for i, row in enumerate(rows) if row.request.beams is not None]
    if beams:
        counts = [group.n_candidates for row in rows if (group := row.request.beams) is not None]
        for i, candidates in zip(beams, beam_candidates(logits[beams], counts), strict=True):
            found[i] = candidates
    return found


def beam_candidates(logits: torch.Tensor, counts: Sequence[int]) -> list[RowResult]:
    """Per row of logits float32 [rows, vocab], the `counts` likeliest (token, log-probability).

    Best first, the lower token of equal ones first. A row whose logits are not all finite yields an
    error.
    """
    broken: list[bool] = (~logits.sum(dim=-1).isfinite()).tolist()
    values, ids = likeliest(logits.log_softmax(dim=-1), max(counts))
    rows = zip(ids.tolist(), values.tolist(), counts, broken, strict=True)
    return [
        RowResult(error=BROKEN)
        if bad
        else RowResult(scores=list(zip(row_ids[:count], row_values[:count], strict=True)))
        for row_ids, row_values, count, bad in rows
    ]
