"""Misses and what-if as lines in a terminal."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from octavo.usage.grouping import at
from octavo.usage.misses import Miss, Misses
from octavo.usage.show import dollars, short, table
from octavo.usage.whatif import RULES, WhatIf


def misses_parts(misses: Misses, zone: tzinfo | None) -> list[Any]:
    """What rich prints: sums by reason, then the costliest."""
    sums = [
        [
            reason.value,
            f"{one.count:,}",
            short(one.tokens),
            dollars(one.cost) if one.cost or not one.unpriced_tokens else "no price",
            dollars(one.lost) if one.lost else "",
        ]
        for reason, one in misses.sums.items()
    ]
    parts = [table(["why tokens were written", "times", "tokens", "cost", "lost"], sums)]
    if misses.costliest:
        rows = [_row(one, zone) for one in misses.costliest]
        parts.append(table(["the costliest", "when", "tokens", "lost", "where"], rows))
    return parts


MISSES_NOTE = (
    "Cost: dollars for writing these tokens. Lost: dollars beyond reading them, where the request "
    "before had them in the cache."
)


def _row(miss: Miss, zone: tzinfo | None) -> list[str]:
    turn, message = miss.turn, miss.turn.message
    gap = turn.gap_seconds or 0.0
    why = miss.reason.value
    if gap >= 60:
        why += f", gap {gap / 60:,.0f} min"
    where = f"{message.session[:8]} {message.project.rpartition('/')[2]}".strip()
    when = at(message.time, zone).strftime("%Y-%m-%d %H:%M")
    return [why, when, short(miss.tokens), dollars(miss.lost or 0.0), where]


def whatif_parts(whatif: WhatIf) -> list[Any]:
    """What rich prints: a row for each setting."""
    logged = whatif.totals["as logged"]
    rows = []
    for name, total in whatif.totals.items():
        change = total - logged
        share = f"{change / logged:+.0%}" if logged else ""
        rows.append([name, dollars(total), dollars(change) if change else "", share])
    return [table(["setting", "total", "difference", ""], rows)]


def whatif_notes(whatif: WhatIf) -> list[str]:
    """The rule behind each total."""
    notes = [f"{name}: {rule}." for name, rule in RULES.items()]
    if whatif.unpriced_tokens:
        notes.append(f"{whatif.unpriced_tokens:,} tokens have no price and are in no sum.")
    return notes
