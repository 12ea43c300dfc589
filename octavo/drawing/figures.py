"""Tables and plots as values: what is shown, not how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A plot of one or more lines through (x, y) points, by the name of each line."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log_x: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A plot of one bar for each name."""

    title: str
    unit: str
    bars: Sequence[tuple[str, float]]
