"""When requests arrive: gaps drawn from a gamma distribution, the same by seed."""

from __future__ import annotations

import math
import random

from octavo.core.errors import ConfigError

MOST_RATE = 1e6
BURSTINESS = (1e-3, 1e6)


def arrival_seconds(
    n_requests: int, rate_per_s: float, *, burstiness: float, seed: int
) -> list[float]:
    """Seconds from the start at which each request arrives; the first one at 0.

    Gaps have the mean 1 / rate and are gamma distributed with the shape `burstiness`: 1 makes a
    Poisson process, below 1 bursts, above 1 an even stream. An infinite rate: all at once.
    Raises ConfigError for a rate or burstiness out of bounds.
    """
    if not (rate_per_s == math.inf or 0 < rate_per_s <= MOST_RATE):
        raise ConfigError(
            f"request_rate must be above 0 and at most {MOST_RATE:g}, or inf", param="request_rate"
        )
    low, high = BURSTINESS
    if not low <= burstiness <= high:
        raise ConfigError(f"burstiness must be from {low:g} to {high:g}", param="burstiness")
    if rate_per_s == math.inf:
        return [0.0] * n_requests
    source = random.Random(seed)
    found, now = [], 0.0
    for _ in range(n_requests):
        found.append(now)
        now += source.gammavariate(burstiness, 1 / (rate_per_s * burstiness))
    return found
