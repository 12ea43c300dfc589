"""A local file of prices: our own format, or LiteLLM's `model_prices_and_context_window.json`.

Own format, in dollars per million tokens (`search`: for each), as JSON or TOML:

    {"date": "2026-11-30", "models": {"some-model": {"input": 3, "output": 15, "read": 0.3,
     "write_5m": 3.75, "write_1h": 6, "search": 0.01, "from": "2026-01-01",
     "above": {"tokens": 200000, "input": 6, "output": 22.5}}}}

A model may have a list of such entries, each in force from its day on. `above` holds for the whole
request when its prompt is longer; what it leaves out stays.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from octavo.core.errors import ConfigError
from octavo.pricing.api_prices import Terms, plain_name, surcharged, undated_name
from octavo.pricing.api_rates import MILLION, Rates

MAX_FILE_BYTES = 64 << 20
MAX_PRICE = 1e6
MAX_THRESHOLD = 10**9
FIELDS = ("input", "output", "read", "write_5m", "write_1h", "search")
LITELLM = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "read": "cache_read_input_token_cost",
    "write_5m": "cache_creation_input_token_cost",
    "write_1h": "cache_creation_input_token_cost_above_1hr",
}
LITELLM_TIERS = (200_000, 272_000)
LITELLM_SEARCH = ("search_context_cost_per_query", "search_context_size_medium")


@dataclass(frozen=True, slots=True)
class Entry:
    """Rates in force from `since` (unix seconds) on; `tiers`: (tokens, rates above), ascending."""

    since: float
    base: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()

    def rates(self, prompt_tokens: int) -> Rates:
        """Of the whole request."""
        found = self.base
        for tokens, rates in self.tiers:
            if prompt_tokens > tokens:
                found = rates
        return found


@dataclass(frozen=True, slots=True)
class PriceFile:
    """Entries by model, each model's by time."""

    source: str
    date: str
    models: Mapping[str, tuple[Entry, ...]]

    def rates(self, terms: Terms) -> Rates | None:
        """The model's own entry, else that of its name without the day of its release."""
        name = plain_name(terms.model)
        for key in (name, undated_name(name), f"anthropic/{name}"):
            for entry in reversed(self.models.get(key, ())):
                if entry.since <= terms.at:
                    rates = entry.rates(terms.prompt_tokens)
                    return surcharged(rates, terms, listed=frozenset())
        return None


def open_price_file(path: Path) -> PriceFile:
    """Raises ConfigError naming the file and, where it is one, the model."""
    shown = f"{str(path)!a}"
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"prices: {shown} is larger than {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    except OSError as error:
        raise ConfigError(f"prices: {shown} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"prices: {shown} is neither JSON nor TOML (.toml)") from None
    if not isinstance(data, dict):
        raise ConfigError(f"prices: {shown} must be an object")
    name = path.name
    if isinstance(data.get("models"), dict):
        own = {str(model): _own(str(model), given) for model, given in data["models"].items()}
        return PriceFile(name, _day(data.get("date", day), "date").isoformat(), own)
    models = {model: _litellm(model, given) for model, given in data.items() if _priced(given)}
    if not models:
        raise ConfigError(
            f"prices: {shown} has no prices: give an object `models`, or LiteLLM's file"
        )
    return PriceFile(name, day, models)


def _own(model: str, given: Any) -> tuple[Entry, ...]:
    entries = []
    for one in given if isinstance(given, list) else [given]:
        where = f"of model {model[:80]!a}"
        if not isinstance(one, dict):
            raise ConfigError(f"prices: the entry {where} must be an object")
        for field in one:
            if field not in (*FIELDS, "from", "above"):
                raise ConfigError(f"prices: unknown field {field[:80]!a} {where}")
        base = _rates(one, where)
        since = _day(one["from"], f"from {where}") if "from" in one else date(1970, 1, 1)
        start = datetime(since.year, since.month, since.day, tzinfo=UTC).timestamp()
        entries.append(Entry(start, base, _above(one, where)))
    return tuple(sorted(entries, key=lambda entry: entry.since))


def _above(one: Mapping[str, Any], where: str) -> tuple[tuple[int, Rates], ...]:
    above = one.get("above")
    if above is None:
        return ()
    tokens = above.get("tokens") if isinstance(above, dict) else None
    if not isinstance(tokens, int) or not 0 < tokens <= MAX_THRESHOLD:
        raise ConfigError(f"prices: above {where} needs tokens, a positive whole number")
    return ((tokens, _rates({**one, **above}, where)),)


def _rates(given: Mapping[str, Any], where: str) -> Rates:
    found: dict[str, float] = {}
    for field in FIELDS:
        if field in given:
            found[field] = _price(given[field], f"{field} {where}")
    for field in ("input", "output"):
        if field not in found:
            raise ConfigError(f"prices: {field} {where} is missing")
    return Rates(**found)


def _price(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"prices: {what} must be a number")
    if not 0 <= value <= MAX_PRICE:  # nor is NaN; a whole number may be beyond any float
        raise ConfigError(f"prices: {what} must be from 0 to {MAX_PRICE:,.0f}")
    return float(value)


def _day(value: Any, what: str) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ConfigError(f"prices: {what} must be a day such as 2026-01-31") from None


def _priced(given: Any) -> bool:
    return isinstance(given, dict) and all(
        isinstance(given.get(LITELLM[field]), int | float) for field in ("input", "output")
    )


def _litellm(model: str, given: Mapping[str, Any]) -> tuple[Entry, ...]:
    where = f"of model {model[:80]!a}"
    base: dict[str, Any] = {
        field: _per_million(given[name])
        for field, name in LITELLM.items()
        if isinstance(given.get(name), int | float)
    }
    searches = given.get(LITELLM_SEARCH[0])
    if isinstance(searches, dict) and LITELLM_SEARCH[1] in searches:
        base["search"] = searches[LITELLM_SEARCH[1]]
    tiers = []
    for tokens in LITELLM_TIERS:
        ending = f"_above_{tokens // 1000}k_tokens"
        above = {
            field: _per_million(given[name + ending])
            for field, name in LITELLM.items()
            if isinstance(given.get(name + ending), int | float)
        }
        if above:
            tiers.append((tokens, _rates({**base, **above}, where)))
    return (Entry(0.0, _rates(base, where), tuple(tiers)),)


def _per_million(price: float) -> float:
    """From dollars a token. What is beyond MAX_PRICE stays so, to be refused by name."""
    return min(price, MAX_PRICE) * MILLION
