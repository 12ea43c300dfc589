"""Prices of the `genai-prices` package: offline data with histories, tiers and variants.

Imported late and optional. Knows no logs and no usage.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from octavo.pricing.api_prices import Terms, plain_name, surcharged
from octavo.pricing.api_rates import Rates

PROVIDER = "anthropic"  # asked first: others resell its models at prices of their own
DATA_FROM_BATCH = {"processing": "batch"}
FAST = {"speed": "fast"}
THOUSAND = 1000
DAY_SECONDS, MINUTE_SECONDS = 86_400.0, 60.0


def open_genai_prices() -> GenaiPrices | None:
    """None if the package is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    return GenaiPrices(get_snapshot())


@dataclass(frozen=True, slots=True)
class _Known:
    """A model of the package, and within what its prices cannot change: all times of a period, all
    prompts between two starts of tiers."""

    model: Any
    period_seconds: float
    tier_starts: tuple[int, ...]

    @classmethod
    def of(cls, model: Any) -> _Known:
        dated = model.prices if isinstance(model.prices, list) else []
        variants = model.price_variants or []
        limits = [one.constraint for one in (*dated, *variants) if one.constraint is not None]
        by_day = all(hasattr(one, "start_date") for one in limits)
        prices = [one.prices for one in (*dated, *variants)]
        if not dated:
            prices.append(model.prices)
        starts = {
            tier.start
            for price in prices
            for value in vars(price).values()
            for tier in getattr(value, "tiers", ())
        }
        return cls(model, DAY_SECONDS if by_day else MINUTE_SECONDS, tuple(sorted(starts)))


class GenaiPrices:
    """Rates from a snapshot of the package's data."""

    def __init__(self, snapshot: Any) -> None:
        from importlib.metadata import version

        self._snapshot = snapshot
        self.source = f"genai-prices {version('genai-prices')}"
        self._model = lru_cache(maxsize=1024)(self._find)
        self._rates = lru_cache(maxsize=16384)(self._rates_of)

    @property
    def date(self) -> str:
        """The newest change of a price in it that is not in the future."""
        today = datetime.now(UTC).date()
        days = (
            getattr(one.constraint, "start_date", None)
            for provider in self._snapshot.providers
            for model in provider.models
            if isinstance(model.prices, list)
            for one in model.prices
        )
        return max((str(day) for day in days if isinstance(day, date) and day <= today), default="")

    def rates(self, terms: Terms) -> Rates | None:
        """The price in force at the time of the request, in the tier of its prompt's length."""
        name = plain_name(terms.model)
        known = self._model(name)
        if known is None:
            return None
        # Requests that cannot differ in price share one look-up.
        at = terms.at // known.period_seconds * known.period_seconds
        tier = bisect_left(known.tier_starts, terms.prompt_tokens)
        prompt = known.tier_starts[tier - 1] + 1 if tier else 0
        return self._rates(Terms(name, at, prompt, *terms[3:]))

    def _find(self, name: str) -> _Known | None:
        for provider in (PROVIDER, None):
            try:
                _, model = self._snapshot.find_provider_model(name, None, provider, None)
            except LookupError:
                continue
            return _Known.of(model)
        return None

    def _rates_of(self, terms: Terms) -> Rates | None:
        known = self._model(terms.model)
        assert known is not None
        model = known.model
        when = datetime.fromtimestamp(terms.at, UTC)
        context: dict[str, str] = {}
        if terms.service_tier == "batch":
            context |= DATA_FROM_BATCH
        if terms.speed == "fast":
            context |= FAST
        price = model.get_prices(when, context)
        listed = frozenset(
            name
            for name, wanted in (("batch", DATA_FROM_BATCH), ("fast", FAST))
            if wanted.items() <= context.items() and _has_variant(model, wanted, when)
        )
        found = _as_rates(price, terms.prompt_tokens)
        return None if found is None else surcharged(found, terms, listed=listed)


def _has_variant(model: Any, wanted: dict[str, str], when: datetime) -> bool:
    return any(
        one.when == wanted and (one.constraint is None or one.constraint.active(when))
        for one in model.price_variants or ()
    )


def _as_rates(price: Any, prompt_tokens: int) -> Rates | None:
    def rate(name: str) -> float | None:
        value = getattr(price, name, None)
        if value is None:
            return None
        if hasattr(value, "tiers"):
            tier = [one.price for one in value.tiers if prompt_tokens > one.start]
            value = tier[-1] if tier else value.base
        return float(value)

    paid_in, paid_out, search = (
        rate("input_mtok"),
        rate("output_mtok"),
        rate("web_searches_kcount"),
    )
    if paid_in is None or paid_out is None:
        return None
    return Rates(
        input=paid_in,
        output=paid_out,
        read=rate("cache_read_mtok"),
        write_5m=rate("cache_write_mtok"),
        write_1h=rate("cache_write_1h_mtok"),
        search=None if search is None else search / THOUSAND,
    )
