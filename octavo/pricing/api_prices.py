"""Which rates a request to a model API falls under. Owns the order in which price data is asked.

A local file comes first, then the `genai-prices` package if it is installed. Nothing is fetched,
and a model that neither knows has no price: none is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from octavo.pricing.api_rates import Rates

US_FACTOR = 1.1  # inference kept in the United States
BATCH_FACTOR = 0.5
# Models whose fast mode has ended and which price data has no more: their factor then.
FAST_FACTORS = {"claude-opus-4-6": 6.0, "claude-opus-4-7": 6.0}
_DATED = re.compile(r"[-@]20\d{6}$")


class Terms(NamedTuple):
    """What of a request decides its rates. `at`: unix seconds; `prompt_tokens`: cached ones too."""

    model: str
    at: float
    prompt_tokens: int
    speed: str = ""
    geo: str = ""
    service_tier: str = ""


class PriceData(Protocol):
    """`date`: the day the prices are of, or "" if that is not known."""

    @property
    def source(self) -> str: ...
    @property
    def date(self) -> str: ...
    def rates(self, terms: Terms) -> Rates | None: ...


@dataclass(frozen=True, slots=True)
class Layers:
    """Price data in the order in which it is asked."""

    layers: Sequence[PriceData] = ()

    @property
    def source(self) -> str:
        return ", then ".join(one.source for one in self.layers)

    @property
    def date(self) -> str:
        """The oldest of the dates that are known."""
        return min((one.date for one in self.layers if one.date), default="")

    def rates(self, terms: Terms) -> Rates | None:
        """None where nobody has a price for exactly these terms."""
        for one in self.layers:
            if (found := one.rates(terms)) is not None:
                return found
        return None


def open_prices(file: Path | None) -> Layers:
    """All there is here. Raises ConfigError for a file that cannot be read or is not understood."""
    from octavo.pricing.genai_prices_data import open_genai_prices
    from octavo.pricing.price_file import open_price_file

    layers: list[PriceData] = []
    if file is not None:
        layers.append(open_price_file(file))
    package = open_genai_prices()
    if package is not None:
        layers.append(package)
    return Layers(layers)


def plain_name(model: str) -> str:
    """Without a note in brackets, as in `claude-opus-4-6[1m]`."""
    return model.partition("[")[0].strip()


def undated_name(model: str) -> str:
    """Without the day of its release, as in `claude-opus-4-5-20251101`."""
    return _DATED.sub("", plain_name(model))


def surcharged(rates: Rates, terms: Terms, *, listed: frozenset[str]) -> Rates | None:
    """`rates` with the factors of speed, place and batch that are not `listed` in them already.

    None if the request ran in a way whose price is not known.
    """
    factor = US_FACTOR if terms.geo.lower() in ("us", "us_only") else 1.0
    if terms.service_tier == "batch" and "batch" not in listed:
        factor *= BATCH_FACTOR
    if terms.speed == "fast" and "fast" not in listed:
        fast = FAST_FACTORS.get(undated_name(terms.model))
        if fast is None:
            return None
        factor *= fast
    return rates if factor == 1.0 else rates.scaled(factor)
