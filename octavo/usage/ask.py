"""One question about usage, from options to a report. Owns what is read for which question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from octavo.pricing.api_prices import PriceData, open_prices
from octavo.usage.grouping import Filter, grouped, total
from octavo.usage.history import History, StartProgress, collect
from octavo.usage.message import Message
from octavo.usage.places import log_roots
from octavo.usage.report import Report, doubts, price_note


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is read: logs, priced by `prices`. `index` None: nothing is kept between runs."""

    logs: Sequence[Path] = ()
    prices: PriceData
    index: Path | None
    wanted: Filter = field(default_factory=Filter)
    zone: tzinfo | None = None

    @classmethod
    def of(cls, *, price_file: Path | None, **rest: object) -> Source:
        """Opens the prices. Raises ConfigError."""
        return cls(prices=open_prices(price_file), **rest)  # type: ignore[arg-type]

    def history(self, progress: StartProgress | None = None) -> History:
        """Everything, unfiltered: why a cache missed depends on what was before."""
        roots = log_roots(self.logs)
        found = collect(roots, self.index, progress=progress)
        if not roots:
            found.notes.append("No logs here: give --logs DIR.")
        return found

    def kept(self, history: History) -> list[Message]:
        """What the question is about."""
        return self.wanted.kept(history.messages, self.zone)


def report(source: Source, group: str, *, progress: StartProgress | None = None) -> Report:
    """The table of one grouping."""
    history = source.history(progress)
    messages = source.kept(history)
    return made_report(source, group, history, messages)


def made_report(
    source: Source, group: str, history: History, messages: Sequence[Message]
) -> Report:
    """From messages that have been chosen already."""
    rows = grouped(messages, group, source.prices, zone=source.zone)
    return Report(
        group=group,
        rows=rows,
        totals=total(rows),
        price_date=source.prices.date,
        price_source=source.prices.source,
        skipped=history.skipped,
        doubts=doubts(messages),
        files=history.files,
        notes=[*history.notes, price_note(source.prices)],
    )
