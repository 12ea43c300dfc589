"""The edges of the histograms of requests: vLLM's, with finer ones where a small model works.

Dashboards sum buckets by their edges, so each of vLLM's is here. Seconds or tokens.
"""

from __future__ import annotations

FIRST_TOKEN_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025),
    *(0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0),
)
REQUEST_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5),
    *(5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)


def token_bounds(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `most`."""
    bounds: list[float] = []
    decade = 1
    while decade <= most:
        bounds += [float(decade * digit) for digit in (1, 2, 5) if decade * digit <= most]
        decade *= 10
    return tuple(bounds)
