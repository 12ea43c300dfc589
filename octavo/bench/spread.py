"""Mean, median and percentiles of measured durations. Knows not what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


class Spread:
    """Durations in seconds, told in milliseconds. Without any, every figure is None."""

    __slots__ = ("_sorted",)

    def __init__(self, seconds: Iterable[float]) -> None:
        self._sorted = sorted(seconds)

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def mean_ms(self) -> float | None:
        return 1e3 * math.fsum(self._sorted) / len(self._sorted) if self._sorted else None

    @property
    def median_ms(self) -> float | None:
        return self.percentile_ms(50)

    @property
    def max_ms(self) -> float | None:
        return 1e3 * self._sorted[-1] if self._sorted else None

    def percentile_ms(self, q: float) -> float | None:
        """The q-th percentile, linear between the two nearest values, as numpy has it."""
        if not self._sorted:
            return None
        place = (len(self._sorted) - 1) * q / 100
        low = math.floor(place)
        high = min(low + 1, len(self._sorted) - 1)
        below, above = self._sorted[low], self._sorted[high]
        return 1e3 * (below + (above - below) * (place - low))

    def figures(self) -> dict[str, float | None]:
        """What a report says of it, in milliseconds."""
        return {"mean": self.mean_ms, "median": self.median_ms, "p99": self.percentile_ms(99)}

    def steps_ms(self) -> tuple[tuple[float, float], ...]:
        """The distribution to draw: (milliseconds, percent of values at most that)."""
        n = len(self._sorted)
        return tuple((1e3 * value, 100 * (i + 1) / n) for i, value in enumerate(self._sorted))
