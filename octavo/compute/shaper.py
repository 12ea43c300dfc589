"""Logits as each request wants them changed before a token is chosen. Knows no choosing.

Owns the order: rules on single tokens first, then penalties. Rows that ask for neither cost
nothing. State is per seat, so a row's result does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from octavo.compute.logit_rules import LogitRules
from octavo.compute.sampler import Shaped
from octavo.compute.token_counts import TokenCounts
from octavo.core.batch import Row


class Shaper:
    """`seats`: rows' seats are below this."""

    def __init__(self, seats: int, vocab: int, *, device: torch.device) -> None:
        self._rules = LogitRules(vocab, device=device)
        self._counts = TokenCounts(seats, vocab, device=device)

    def vacate(self, seats: Sequence[int]) -> None:
        """Forget who sat there. Before any row of the same batch: a seat may be taken again."""
        self._rules.vacate(seats)
        self._counts.vacate(seats)

    def shape(self, rows: Sequence[Row], logits: torch.Tensor) -> Shaped | None:
        """The rows that ask for a change, changed. `logits` float32 [rows, vocab] stay as they are.

        Each row's request has all its confirmed tokens, and the logits are of the next one.
        """
        which = [
            number
            for number, row in enumerate(rows)
            if row.request.sampling.restricts or row.request.sampling.penalises
        ]
        if not which:
            return None
        shaped = logits[which]  # a copy
        asking = list(enumerate(rows[number] for number in which))
        restricted = [each for each in asking if each[1].request.sampling.restricts]
        if restricted:
            self._rules.apply(restricted, shaped)
        penalised = [each for each in asking if each[1].request.sampling.penalises]
        if penalised:
            self._counts.penalise(penalised, shaped)
        return Shaped(which, shaped)
