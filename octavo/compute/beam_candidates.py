"""The likeliest continuations of a beam. Knows no groups and no sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.compute.likeliest import likeliest
from octavo.compute.sampler import BROKEN
from octavo.core.batch import RowResult


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
