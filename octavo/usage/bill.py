"""Tokens and dollars summed by kind. Owns the sums' arithmetic and the names of the kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.pricing.api_prices import PriceData, Terms
from octavo.pricing.api_rates import Cost, Rates
from octavo.usage.message import Message, Part

# As in JSON, in the order of `Cost`. Other: searches, which are counted, not measured in tokens.
KINDS = ("input", "cache_write_5m", "cache_write_1h", "cache_read", "output", "other")
DIGITS = 9  # of dollars in JSON


def rates_of(part: Part, message: Message, prices: PriceData) -> Rates | None:
    """At the price in force at the message's time, in the tier of this one request."""
    return prices.rates(
        Terms(
            part.model,
            message.time,
            part.prompt,
            message.speed,
            message.geo,
            message.service_tier,
        )
    )


def cost_of(part: Part, rates: Rates) -> Cost | None:
    """None if one of its kinds has no price."""
    return rates.cost(
        input=part.input,
        write_5m=part.write_5m,
        write_1h=part.write_1h,
        read=part.read,
        output=part.output,
        searches=part.searches,
    )


@dataclass(slots=True)
class Bill:
    """Sums over messages. `cost` and `uncached` leave out what has no price: `unpriced_tokens`.

    `uncached`: dollars for the same traffic with every prompt token paid as input. `lump`: dollars
    that are not told by kind, of which `uncached` knows nothing.
    """

    messages: int = 0
    tokens: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    cost: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    uncached: float = 0.0
    lump: float | None = None
    unpriced_tokens: int = 0
    unpriced_models: set[str] = field(default_factory=set)

    def add(self, part: Part, message: Message, prices: PriceData) -> None:
        """One part; whoever adds the first part of a message counts the message."""
        counts = (part.input, part.write_5m, part.write_1h, part.read, part.output, part.searches)
        for i, count in enumerate(counts):
            self.tokens[i] += count
        rates = rates_of(part, message, prices)
        cost = None if rates is None else cost_of(part, rates)
        if rates is None or cost is None:
            self.unpriced_tokens += part.tokens
            if part.tokens:
                self.unpriced_models.add(part.model)
            return
        for i, dollars in enumerate(cost):
            self.cost[i] += dollars
        plain = rates.cost(input=part.prompt, output=part.output, searches=part.searches)
        assert plain is not None
        self.uncached += plain.total

    def merge(self, other: Bill) -> None:
        """Add another sum."""
        self.messages += other.messages
        for i in range(len(KINDS)):
            self.tokens[i] += other.tokens[i]
            self.cost[i] += other.cost[i]
        self.uncached += other.uncached
        if other.lump is not None:
            self.lump = (self.lump or 0.0) + other.lump
        self.unpriced_tokens += other.unpriced_tokens
        self.unpriced_models |= other.unpriced_models

    @property
    def total(self) -> float:
        """Dollars of all that has a price."""
        return sum(self.cost) + (self.lump or 0.0)

    @property
    def priced(self) -> bool:
        """Whether anything in it has a price: else its dollars are not 0 but unknown."""
        return not self.unpriced_tokens or self.uncached > 0 or self.lump is not None

    @property
    def hit_rate(self) -> float | None:
        """Of all prompt tokens, the share read from the cache; None without prompts."""
        prompt = sum(self.tokens[:4])
        return self.tokens[3] / prompt if prompt else None

    def as_json(self) -> dict[str, Any]:
        """With stable names. Dollars are null where nothing has a price."""
        costs: dict[str, float | None] = dict.fromkeys((*KINDS, "total", "uncached", "saved"))
        if self.lump is None and self.priced:
            costs |= dict(zip(KINDS, self.cost, strict=True))
            costs |= {"uncached": self.uncached, "saved": self.uncached - self.total}
        if self.priced:
            costs["total"] = self.total
        return {
            "messages": self.messages,
            **dict(zip(KINDS, self.tokens, strict=True)),
            "hit_rate": self.hit_rate,
            "cost": {
                name: None if value is None else round(value, DIGITS)
                for name, value in costs.items()
            },
            "unpriced_tokens": self.unpriced_tokens,
            "unpriced_models": sorted(self.unpriced_models),
        }
