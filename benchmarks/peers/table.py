"""The peers' results as tables: every entry, and each engine at its best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.peers.case import CASES
from benchmarks.peers.entry import ENTRIES

Figures = dict[str, Any]  # what run.py writes under "figures"
OURS = "Octavo"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    more_is_better: bool

    def best(self, values: list[float]) -> float:
        return max(values) if self.more_is_better else min(values)


ROWS = (
    *(Row(case.name, f"{case.title}, {case.unit}", case.unit != "s") for case in CASES),
    Row("first_token", "process start to first token, s", False),
    Row("peak_memory", "peak memory, GiB", False),
)


def shown(value: float) -> str:
    """Three figures or more, as a reader compares them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def marked(values: list[float], row: Row) -> list[str]:
    """Cells of one row, the best of them bold."""
    best = row.best(values)
    return [f"**{shown(value)}**" if value == best else shown(value) for value in values]


def markdown(head: list[str], lines: list[list[str]]) -> str:
    every = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in every)


def full(figures: Figures) -> str:
    """A column for every entry, and what they were."""
    entries: dict[str, Any] = figures["engines"]
    lines = []
    for row in ROWS:
        values = [entry[row.name]["median"] for entry in entries.values()]
        lines.append([row.title, *marked(values, row)])
    versions = [f"{title} {entry['version']}" for title, entry in entries.items()]
    text = f"Medians of {figures['rounds']} rounds, {figures['threads']} threads each, "
    text += f"the load of the machine being {figures['load before']} at the start. "
    text += f"Releases: {', '.join(versions)}.\n"
    for name, reason in figures["left out"].items():
        text += f"{name} is left out: {reason}.\n"
    return text + "\n" + markdown(["", *entries], lines)


def best_of(engine: str, row: Row, figures: Figures) -> float:
    """The engine's best figure over the weights it was run with."""
    titles = [entry.title for entry in ENTRIES if entry.engine == engine]
    entries = figures["engines"]
    return row.best([entries[t][row.name]["median"] for t in titles if t in entries])


def short(figures: Figures) -> str:
    """A column for every engine at its best, and how Octavo compares with the best of the others.

    The ratio is over 1 where Octavo is better.
    """
    measured = [entry.engine for entry in ENTRIES if entry.title in figures["engines"]]
    engines = list(dict.fromkeys(measured))
    lines = []
    for row in ROWS:
        values = [best_of(engine, row, figures) for engine in engines]
        ours = values[engines.index(OURS)]
        peer = row.best([v for v, engine in zip(values, engines, strict=True) if engine != OURS])
        ratio = ours / peer if row.more_is_better else peer / ours
        lines.append([row.title, *marked(values, row), f"{ratio:.2f}×"])
    return markdown(["", *engines, "Octavo to the best peer"], lines)
