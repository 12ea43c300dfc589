"""Counts of values by size, as a scraper wants them. Owns the counting; knows no names, no labels.

One thread adds. A `Spread` is a copy that any thread may read.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import NamedTuple


class Spread(NamedTuple):
    """`counts[i]`: values of at most `bounds[i]` and above the bound before; the last: the rest."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def n(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Values of at most each bound, and last all of them."""
        return list(accumulate(self.counts))


class Histogram:
    """`bounds` rise. An addition costs one bisection and allocates nothing."""

    __slots__ = ("_bounds", "_counts", "_spread", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        assert all(low < high for low, high in pairwise(bounds))
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._spread: Spread | None = None  # the last copy, while it is true

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value
        self._spread = None

    def spread(self) -> Spread:
        if self._spread is None:
            self._spread = Spread(self._bounds, tuple(self._counts), self._total)
        return self._spread
