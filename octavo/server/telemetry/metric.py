"""What a metric is: its name, its kind, what it says and where its value comes from.

Knows no text format and no metric by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from octavo.core.histogram import Spread
from octavo.engine.stats import EngineStats
from octavo.server.telemetry.process import ProcessFigures
from octavo.server.telemetry.traffic import Traffic


class Reading(NamedTuple):
    """Where the values of one scrape come from. `facts`: what was chosen at the start."""

    stats: EngineStats
    traffic: Traffic
    process: ProcessFigures
    facts: Mapping[str, str]
    ledger_lost_rows: int
    bytes_per_token: int = 0
    capacity_tokens: int = 0


Labelled = Mapping[tuple[str, ...], float]
Value = float | Spread | Labelled | None


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` without the `_total` of a counter. `labels`: those beside the ones that all have.

    A value of None is left out: it cannot be had here.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    doc: str
    value: Callable[[Reading], Value]
    labels: tuple[str, ...] = ()
    plain: bool = False  # without the labels of the model


def counter(
    name: str, doc: str, value: Callable[[Reading], Value], *labels: str, plain: bool = False
) -> Metric:
    return Metric(name, "counter", doc, value, labels, plain)


def gauge(
    name: str, doc: str, value: Callable[[Reading], Value], *labels: str, plain: bool = False
) -> Metric:
    return Metric(name, "gauge", doc, value, labels, plain)


def histogram(name: str, doc: str, value: Callable[[Reading], Value]) -> Metric:
    return Metric(name, "histogram", doc, value)
