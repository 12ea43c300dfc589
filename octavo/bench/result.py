"""What a benchmark found, ready to be shown: figures for machines, tables and plots for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.spread import Spread
from octavo.bench.summary import LATENCIES, Summary
from octavo.drawing.figures import Bars, Lines, Table

SHOWN_ERRORS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`settings`: what was asked for. `figures`: what came out, with units in the names."""

    name: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    tables: Sequence[Table]
    plots: Sequence[Lines | Bars] = ()
    notes: Sequence[str] = ()


def shown(value: float | None, digits: int = 2) -> str:
    """A number as people read it; – where there is none."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def load_table(summary: Summary) -> Table:
    """Counts and rates of one load."""
    rows = [
        ("requests completed", shown(summary.completed)),
        ("requests failed", shown(summary.failed)),
        ("duration, s", shown(summary.duration_seconds)),
        ("requests/s", shown(summary.per_second(summary.completed))),
        ("input tokens", shown(summary.input_tokens)),
        ("output tokens", shown(summary.output_tokens)),
        ("input tokens/s", shown(summary.per_second(summary.input_tokens))),
        ("output tokens/s", shown(summary.per_second(summary.output_tokens))),
        ("tokens/s, both", shown(summary.per_second(summary.input_tokens + summary.output_tokens))),
        ("prefix hit rate", percent(summary.hit_rate)),
        ("saved prefill tokens", shown(summary.cached_tokens)),
    ]
    if summary.good is not None:
        rows.insert(4, ("goodput, requests/s", shown(summary.per_second(summary.good))))
    return Table("Load", ("", "value"), tuple(rows))


def latency_table(latencies: Mapping[str, Spread]) -> Table:
    """Mean, median and P99 of each latency, in milliseconds."""
    rows = tuple(
        (LATENCIES[name], *(shown(value) for value in spread.figures().values()))
        for name, spread in latencies.items()
    )
    return Table("Latency, ms", ("", "mean", "median", "P99"), rows)


def distributions(latencies: Mapping[str, Spread]) -> list[Lines]:
    """One plot for each latency that there is: how many percent were at most how long."""
    return [
        Lines(
            title=LATENCIES[name],
            x_label="ms",
            y_label="% at most this",
            series={LATENCIES[name]: spread.steps_ms()},
        )
        for name, spread in latencies.items()
        if len(spread) > 1
    ]


def failures(summary: Summary) -> list[str]:
    """A line for each kind of failure, the most frequent first."""
    kinds = sorted(summary.errors.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{count} failed: {message}" for message, count in kinds[:SHOWN_ERRORS]]
    left = sum(count for _, count in kinds[SHOWN_ERRORS:])
    return [*lines, f"{left} failed for other reasons"] if left else lines
