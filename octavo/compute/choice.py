"""What one row asks of a choice, and who answers. Values only; knows no way to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from octavo.core.sampling import SamplingParams

# Answers that are no token.
NOT_FINITE = -1
NOTHING_LEFT = -2


class Draw(NamedTuple):
    """What one row asks for. `position` is the index of the token being chosen."""

    params: SamplingParams
    choice: int
    position: int


class Chooser(Protocol):
    """Chooses one token for each row, by temperature, top_k, top_p and min_p."""

    def __call__(
        self, logits: torch.Tensor, draws: Sequence[Draw | None], *, shaped: bool = False
    ) -> list[int]:
        """Token ids for rows of logits float32 [rows, vocab], contiguous; None asks for the best.

        A row whose logits are not all finite gets NOT_FINITE. Rows that are `shaped` may hold -inf,
        forbidden tokens, and get NOTHING_LEFT if there is no other.
        """
