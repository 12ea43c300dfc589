"""The answer to one question about the logs, ready to be shown or written as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.pricing.api_prices import PriceData
from octavo.usage.bill import Bill
from octavo.usage.grouping import Row
from octavo.usage.message import Message

SUBSCRIPTION = "Dollars are list prices of the API; with a subscription you pay its price instead."


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`doubts`: answers that count, but not surely by their right numbers, by the reason."""

    group: str
    rows: Sequence[Row]
    totals: Bill
    price_date: str
    price_source: str
    skipped: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    files: int = 0
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """With stable names."""
        return {
            "group": self.group,
            "rows": [
                {
                    "key": row.key,
                    **({"project": row.note} if row.note else {}),
                    **row.bill.as_json(),
                }
                for row in self.rows
            ],
            "totals": self.totals.as_json(),
            "prices": {"date": self.price_date, "source": self.price_source},
            "skipped": dict(self.skipped),
            "doubts": dict(self.doubts),
            "files": self.files,
            "notes": list(self.notes),
        }


def doubts(messages: Sequence[Message]) -> Counter[str]:
    """What the logs' own faults leave open. Placeholders are told by the version that wrote them:
    what was never written down cannot be repaired."""
    found: Counter[str] = Counter()
    for message in messages:
        if message.placeholder:
            found[f"placeholder output, version {message.version or 'unknown'}"] += 1
        if message.unsplit:
            found["write without its time to live, taken for 5 minutes"] += 1
    return found


def price_note(prices: PriceData) -> str:
    """Where the dollars come from and of what day they are."""
    if not prices.source:
        return 'No prices here: pip install -e ".[prices]" in the checkout, or give --prices FILE.'
    return f"Prices: {prices.source}, of {prices.date or 'an unknown day'}. {SUBSCRIPTION}"
