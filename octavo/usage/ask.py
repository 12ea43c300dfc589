"""One question about usage, from options to an answer. Owns what is read for which question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from octavo.pricing.api_prices import PriceData
from octavo.usage.grouping import Filter, grouped, total
from octavo.usage.history import History, StartProgress, collect
from octavo.usage.message import Message
from octavo.usage.places import log_roots
from octavo.usage.report import Report, doubts, price_note
from octavo.usage.trace import read_traces
from octavo.usage.turns import Turn, turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is read: logs, or traces as if they began at `now`. `index` None: nothing is kept.

    `wanted` chooses what the answer is about; everything is read, since why a cache missed depends
    on what was before.
    """

    prices: PriceData
    logs: Sequence[Path] = ()
    traces: Sequence[Path] = ()
    now: float = 0.0
    index: Path | None = None
    wanted: Filter = field(default_factory=Filter)
    zone: tzinfo | None = None

    def history(self, progress: StartProgress | None = None) -> History:
        """Everything. Raises ConfigError for a path that cannot be read."""
        if self.traces:
            found = read_traces(self.traces, start=self.now)
            return History(found, files=len(self.traces))
        roots = log_roots(self.logs)
        history = collect(roots, self.index, progress=progress)
        if not roots:
            history.notes.append("No logs here: give --logs DIR.")
        return history

    def kept(self, history: History) -> list[Message]:
        """What the question is about."""
        return self.wanted.kept(history.messages, self.zone)

    def turns(self, history: History) -> Iterator[Turn]:
        """Those of what the question is about. In traces nothing is ever forgotten."""
        ids = {one.id for one in self.kept(history)}
        ttl = math.inf if self.traces else None
        found = turns(history.messages, history.compactions, ttl_seconds=ttl)
        return (turn for turn in found if turn.message.id in ids)

    def report(self, group: str, history: History) -> Report:
        """The table of one grouping."""
        messages = self.kept(history)
        rows = grouped(messages, group, self.prices, zone=self.zone)
        return Report(
            group=group,
            rows=rows,
            totals=total(rows),
            price_date=self.prices.date,
            price_source=self.prices.source,
            skipped=history.skipped,
            doubts=doubts(messages),
            files=history.files,
            notes=[*history.notes, price_note(self.prices)],
        )
