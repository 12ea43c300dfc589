"""A scheduler for tests: hand-built batches over tables with shuffled block ids."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

from octavo.core.batch import Batch, Move, Row
from octavo.core.request import Limits, Request
from octavo.core.sampling import SamplingParams
from octavo.core.table import BlockTable

GREEDY = SamplingParams(temperature=0.0, seed=0)


class Steps:
    """Hands out blocks in random order and turns requests into rows."""

    def __init__(
        self, num_blocks: int, *, block_tokens: int, seed: int = 0, groups: int = 1
    ) -> None:
        self.block_tokens = block_tokens
        self.groups = groups
        self.free = list(range(1, num_blocks + 1))
        random.Random(seed).shuffle(self.free)
        self.step = 0

    def request(
        self,
        tokens: Sequence[int],
        *,
        sampling: SamplingParams = GREEDY,
        choice: int = 0,
        name: str = "r",
    ) -> Request:
        request = Request(name, tokens, limits=Limits(1 << 20), sampling=sampling, choice=choice)
        request.table = BlockTable([array("i") for _ in range(self.groups)])
        return request

    def cover(self, request: Request, n_tokens: int) -> None:
        """Grow the request's table to hold `n_tokens`."""
        assert request.table is not None
        for group in request.table.groups:
            while len(group) * self.block_tokens < n_tokens:
                group.append(self.free.pop())

    def row(
        self, request: Request, end: int | None = None, *, write_from: int | None = None
    ) -> Row:
        """Tokens [computed, end) of `request`; it samples when they reach its last known token."""
        end = len(request.tokens) if end is None else end
        start = request.computed
        samples = end == len(request.tokens)
        self.cover(request, end)
        write = start if write_from is None else write_from
        logits_from = end - 1 if samples else end
        return Row(request, 0, start, end, write, logits_from, (), samples)

    def batch(self, rows: list[Row], moves: Sequence[Move] = ()) -> Batch:
        self.step += 1
        return Batch(self.step, rows, list(moves), [])
