"""What was paid for tokens that the cache did not supply, by the reason. Owns the dollars of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, NamedTuple

from octavo.pricing.api_prices import PriceData
from octavo.pricing.api_rates import MILLION, Rates
from octavo.usage.bill import DIGITS, rates_of
from octavo.usage.grouping import at
from octavo.usage.turns import Reason, Turn

COSTLIEST = 10


class Miss(NamedTuple):
    """`tokens`: written, or paid as input, for this reason. `cost`: dollars for them. `lost`:
    dollars beyond reading them; 0 where there was nothing to read. None without a price."""

    turn: Turn
    reason: Reason
    tokens: int
    cost: float | None
    lost: float | None


@dataclass(slots=True)
class ReasonSum:
    """All misses of one reason; dollars of those that have a price."""

    count: int = 0
    tokens: int = 0
    cost: float = 0.0
    lost: float = 0.0
    unpriced_tokens: int = 0

    def add(self, miss: Miss) -> None:
        self.count += 1
        self.tokens += miss.tokens
        if miss.cost is None or miss.lost is None:
            self.unpriced_tokens += miss.tokens
        else:
            self.cost += miss.cost
            self.lost += miss.lost


@dataclass(slots=True)
class Misses:
    """Sums by reason, and the costliest with when and where."""

    sums: dict[Reason, ReasonSum] = field(default_factory=dict)
    costliest: list[Miss] = field(default_factory=list)

    def as_json(self, zone: tzinfo | None) -> dict[str, Any]:
        """With stable names."""
        return {
            "reasons": [
                {
                    "reason": reason.value,
                    "count": one.count,
                    "tokens": one.tokens,
                    "cost": round(one.cost, DIGITS),
                    "lost": round(one.lost, DIGITS),
                    "unpriced_tokens": one.unpriced_tokens,
                }
                for reason, one in self.sums.items()
            ],
            "costliest": [_miss_json(one, zone) for one in self.costliest],
        }


def misses(turns: Iterable[Turn], prices: PriceData) -> Misses:
    """Every written token, and every one paid again, under one reason."""
    found = Misses({reason: ReasonSum() for reason in Reason})
    lost: list[Miss] = []
    for turn in turns:
        for miss in of_turn(turn, prices):
            found.sums[miss.reason].add(miss)
            if miss.lost:
                lost.append(miss)
    lost.sort(key=lambda miss: (-(miss.lost or 0.0), miss.turn.message.time))
    found.costliest = lost[:COSTLIEST]
    found.sums = {reason: one for reason, one in found.sums.items() if one.count}
    return found


def of_turn(turn: Turn, prices: PriceData) -> Sequence[Miss]:
    """What the turn paid again, and what it wrote beyond that."""
    message, main = turn.message, turn.message.main
    rates = rates_of(main, message, prices)
    if turn.reason is Reason.TOO_SHORT:
        return [_priced(turn, turn.reason, main.prompt, rates, again=False)]
    again = turn.missed
    new = max(0, main.write - again)
    found = []
    if again:
        found.append(_priced(turn, turn.reason, again, rates, again=True))
    if new:
        reason = Reason.FIRST if turn.gap_seconds is None else Reason.NEW
        found.append(_priced(turn, reason, new, rates, again=False))
    return found


def _priced(turn: Turn, reason: Reason, tokens: int, rates: Rates | None, *, again: bool) -> Miss:
    """Tokens are taken to be written in the proportion of the turn's writes, then to be input."""
    if rates is None:
        return Miss(turn, reason, tokens, None, None)
    main = turn.message.main
    written = min(tokens, main.write)
    short = rates.input if rates.write_5m is None else rates.write_5m
    if main.write_1h and rates.write_1h is None:
        return Miss(turn, reason, tokens, None, None)
    long = rates.write_1h or 0.0
    rate = (main.write_5m * short + main.write_1h * long) / main.write if main.write else 0.0
    cost = (written * rate + (tokens - written) * rates.input) / MILLION
    read = rates.input if rates.read is None else rates.read
    lost = max(0.0, cost - tokens * read / MILLION) if again else 0.0
    return Miss(turn, reason, tokens, cost, lost)


def _miss_json(miss: Miss, zone: tzinfo | None) -> dict[str, Any]:
    turn, message = miss.turn, miss.turn.message
    gap = turn.gap_seconds
    return {
        "time": at(message.time, zone).isoformat(timespec="seconds"),
        "session": message.session,
        "project": message.project,
        "agent": message.agent,
        "model": message.model,
        "reason": miss.reason.value,
        "gap_minutes": None if gap is None else round(gap / 60, 1),
        "tokens": miss.tokens,
        "cost": None if miss.cost is None else round(miss.cost, DIGITS),
        "lost": None if miss.lost is None else round(miss.lost, DIGITS),
    }
