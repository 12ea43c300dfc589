"""How long published blocks lie unused and how long they live, over all of them since the start.

Owns the three counts and each block's birthday; knows no references and no keys. Seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.core.histogram import Histogram, Spread

# vLLM's edges for the same three measures.
AGE_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
)


class AgeSpreads(NamedTuple):
    """lifetime: from publication to eviction. idle: from the last use to eviction.

    reuse_gap: how long a block had lain unused when it was hit again.
    """

    lifetime: Spread
    idle: Spread
    reuse_gap: Spread


class BlockAges:
    def __init__(self, total_blocks: int) -> None:
        self._born = [0.0] * (total_blocks + 1)
        self._lifetime = Histogram(AGE_BOUNDS)
        self._idle = Histogram(AGE_BOUNDS)
        self._reuse_gap = Histogram(AGE_BOUNDS)

    def published(self, block: int, now: float) -> None:
        self._born[block] = now

    def reused(self, idle_seconds: float) -> None:
        self._reuse_gap.add(idle_seconds)

    def evicted(self, block: int, now: float, idle_seconds: float) -> None:
        self._lifetime.add(now - self._born[block])
        self._idle.add(idle_seconds)

    def spreads(self) -> AgeSpreads:
        return AgeSpreads(self._lifetime.spread(), self._idle.spread(), self._reuse_gap.spread())
