"""What the operator charges for tokens. Owns the arithmetic of one request's cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.core.errors import ConfigError
from octavo.server.telemetry.generation import Outcome

MAX_PRICE = 1e6
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars per million tokens. A cache price that is not set is the input price."""

    input: float
    output: float
    cache_write: float
    cache_read: float

    @classmethod
    def of(
        cls,
        *,
        price_input: float | None,
        price_output: float | None,
        price_cache_write: float | None,
        price_cache_read: float | None,
    ) -> Prices | None:
        """None if nothing is charged. Raises ConfigError naming the option."""
        given = {
            "price_input": price_input,
            "price_output": price_output,
            "price_cache_write": price_cache_write,
            "price_cache_read": price_cache_read,
        }
        for name, price in given.items():
            if price is not None and not (math.isfinite(price) and 0 <= price <= MAX_PRICE):
                flag = "--" + name.replace("_", "-")
                message = f"{flag} must be from 0 to {MAX_PRICE:,.0f} dollars per million tokens"
                raise ConfigError(message, param=name)
        if all(price is None for price in given.values()):
            return None
        if price_input is None or price_output is None:
            name = "price_input" if price_input is None else "price_output"
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"prices were given without {flag}; set it, if only to 0", param=name)
        return cls(
            input=price_input,
            output=price_output,
            cache_write=price_input if price_cache_write is None else price_cache_write,
            cache_read=price_input if price_cache_read is None else price_cache_read,
        )

    def cost_dollars(self, outcome: Outcome) -> float:
        """Only what a pin was asked to keep is a cache write; other computed tokens are input."""
        pinned = outcome.written_5m_tokens + outcome.written_1h_tokens
        plain = outcome.written_implicit_tokens + outcome.unkept_tokens
        return (
            plain * self.input
            + pinned * self.cache_write
            + outcome.read_tokens * self.cache_read
            + outcome.output_tokens * self.output
        ) / MILLION
