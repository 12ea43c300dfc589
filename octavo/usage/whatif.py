"""The same requests under other cache settings. Owns the rules of each and their arithmetic.

Prompts, answers and their times stay as they were; only what is read, written and for how long
changes, and what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from octavo.pricing.api_prices import PriceData
from octavo.pricing.api_rates import MILLION, Rates
from octavo.usage.bill import DIGITS, cost_of, rates_of
from octavo.usage.message import Message, Part
from octavo.usage.turns import LONG_SECONDS, SHORT_SECONDS, Reason, Turn

PING_SECONDS = 270.0  # a little below 5 minutes
RULES = {
    "as logged": "what the log says",
    "all 5 minutes": (
        "every write at the price of 5 minutes; what was read after a longer gap out of a cache of "
        "1 hour is written again"
    ),
    "all 1 hour": (
        "every write at the price of 1 hour; what had run out after 5 minutes and was asked for "
        "within the hour is read"
    ),
    "better per session": "for each session the cheaper of all 5 minutes and all 1 hour",
    "no caching": "every prompt token at the price of input",
    "keep-alive pings": (
        f"all 5 minutes, and while nothing is asked the prefix is read every {PING_SECONDS:g} "
        "seconds, until that has cost as much as writing it again, also after a session's last "
        "request"
    ),
}


class Totals(NamedTuple):
    """Dollars of one session under each setting, in the order of RULES but the better one."""

    logged: float = 0.0
    short: float = 0.0
    long: float = 0.0
    uncached: float = 0.0
    pinged: float = 0.0

    def plus(self, other: Totals) -> Totals:
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(slots=True)
class WhatIf:
    """Dollars by the name of the setting. `unpriced_tokens` are in none of them."""

    totals: dict[str, float] = field(default_factory=dict)
    unpriced_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """With stable names."""
        logged = self.totals["as logged"]
        return {
            "settings": [
                {
                    "name": name,
                    "total": round(total, DIGITS),
                    "difference": round(total - logged, DIGITS),
                    "rule": RULES[name],
                }
                for name, total in self.totals.items()
            ],
            "unpriced_tokens": self.unpriced_tokens,
        }


def whatif(turns: Iterable[Turn], prices: PriceData) -> WhatIf:
    """Sums over all turns; they come chain after chain."""
    found = WhatIf()
    sessions: dict[str, Totals] = {}
    last: Turn | None = None
    for turn in turns:
        message = turn.message
        if last is not None and last.message.chain != message.chain:
            _add(sessions, last.message, Totals(pinged=_pings_after(last, prices)))
        last = turn
        totals = _of_turn(turn, prices)
        if totals is None:
            found.unpriced_tokens += sum(part.tokens for part in message.parts)
        else:
            _add(sessions, message, totals)
    if last is not None:
        _add(sessions, last.message, Totals(pinged=_pings_after(last, prices)))
    total = Totals()
    better = 0.0
    for one in sessions.values():
        total = total.plus(one)
        better += min(one.short, one.long)
    logged, short, long, uncached, pinged = total
    found.totals = dict(zip(RULES, (logged, short, long, better, uncached, pinged), strict=True))
    return found


def _add(sessions: dict[str, Totals], message: Message, totals: Totals) -> None:
    sessions[message.session] = sessions.get(message.session, Totals()).plus(totals)


def _of_turn(turn: Turn, prices: PriceData) -> Totals | None:
    """None if anything in it has no price under one of the settings."""
    message, main = turn.message, turn.message.main
    rates = rates_of(main, message, prices)
    others = _others(message, prices)
    if rates is None or others is None:
        return None
    short, pinged = _short(turn), _pinged(turn, rates)
    parts = (main, short, _long(turn), _uncached(main), pinged)
    costs = [cost_of(part, rates) for part in parts]
    if any(cost is None for cost in costs):
        return None
    dollars = [others + cost.total for cost in costs if cost is not None]
    dollars[-1] += _pings(turn, rates)[0]
    return Totals(*dollars)


def _others(message: Message, prices: PriceData) -> float | None:
    """What comes on top of the request itself is the same under every setting."""
    total = 0.0
    for part in message.extra:
        rates = rates_of(part, message, prices)
        cost = None if rates is None else cost_of(part, rates)
        if cost is None:
            return None
        total += cost.total
    return total


def _short(turn: Turn) -> Part:
    return _under(turn, SHORT_SECONDS)


def _long(turn: Turn) -> Part:
    part = _under(turn, LONG_SECONDS)
    return part._replace(write_5m=0, write_1h=part.write)


def _under(turn: Turn, ttl_seconds: float) -> Part:
    """The request where everything is kept for `ttl_seconds`; what it writes is in `write_5m`.

    Within them it reads what had run out earlier. Beyond them it writes what had been kept for
    longer; whatever else the log has it read then came from elsewhere and stays.
    """
    main, gap = turn.message.main, turn.gap_seconds or 0.0
    if gap <= ttl_seconds:
        return _reading(main, turn.reusable)
    kept_for_longer = turn.ttl_seconds > ttl_seconds and turn.reason is not Reason.EXPIRED
    read = 0 if kept_for_longer else main.read
    return main._replace(read=read, write_5m=main.read + main.write - read, write_1h=0)


def _reading(main: Part, read: int) -> Part:
    """As if `read` tokens had been in the cache, if that is more: they are taken off the writes,
    then off the input. What is written is kept for 5 minutes."""
    more = max(0, read - main.read)
    written = max(0, main.write - more)
    return main._replace(
        read=main.read + more,
        write_5m=written,
        write_1h=0,
        input=main.input - max(0, more - main.write),
    )


def _uncached(main: Part) -> Part:
    return Part(main.model, main.prompt, output=main.output, searches=main.searches)


def _pinged(turn: Turn, rates: Rates) -> Part:
    """A cache of 5 minutes that pings keep for as long as they pay."""
    kept = (turn.gap_seconds or 0.0) > SHORT_SECONDS and _pings(turn, rates)[1]
    return _reading(turn.message.main, turn.reusable) if kept else _short(turn)


def _pings(turn: Turn, rates: Rates) -> tuple[float, bool]:
    """Dollars for the pings in the gap before a turn, and whether they kept the prefix."""
    gap = turn.gap_seconds
    if gap is None or gap <= SHORT_SECONDS:
        return 0.0, True
    needed, most = math.ceil(gap / PING_SECONDS) - 1, most_pings(rates)
    return min(needed, most) * turn.held * _read_rate(rates) / MILLION, needed <= most


def _pings_after(turn: Turn, prices: PriceData) -> float:
    """Nobody knows that a request is the last."""
    rates = rates_of(turn.message.main, turn.message, prices)
    if rates is None:
        return 0.0
    return most_pings(rates) * turn.message.held * _read_rate(rates) / MILLION


def most_pings(rates: Rates) -> int:
    """How often a prefix can be read for the price of writing it instead of reading it once."""
    read = _read_rate(rates)
    write = rates.input if rates.write_5m is None else rates.write_5m
    return int((write - read) / read + 1e-9) if read > 0 else 0


def _read_rate(rates: Rates) -> float:
    return rates.input if rates.read is None else rates.read
