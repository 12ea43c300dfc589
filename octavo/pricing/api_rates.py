"""What a model API charges for one request. Owns the rates' arithmetic; knows no models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

MILLION = 1e6


class Cost(NamedTuple):
    """Dollars by kind of token; `other`: searches and the like, which are paid for each."""

    input: float = 0.0
    write_5m: float = 0.0
    write_1h: float = 0.0
    read: float = 0.0
    output: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Dollars per million tokens, and per search. None: the provider lists no such price.

    Input excludes what was read from the cache or written to it.
    """

    input: float
    output: float
    read: float | None = None
    write_5m: float | None = None
    write_1h: float | None = None
    search: float | None = None

    def scaled(self, factor: float) -> Rates:
        """All token prices times `factor`; searches stay."""
        return replace(
            self,
            input=self.input * factor,
            output=self.output * factor,
            read=None if self.read is None else self.read * factor,
            write_5m=None if self.write_5m is None else self.write_5m * factor,
            write_1h=None if self.write_1h is None else self.write_1h * factor,
        )

    def cost(
        self,
        *,
        input: int = 0,
        write_5m: int = 0,
        write_1h: int = 0,
        read: int = 0,
        output: int = 0,
        searches: int = 0,
    ) -> Cost | None:
        """Of one request's tokens. None if it used something that has no price here.

        Where reads or writes of 5 minutes have no price of their own they are input, as at
        providers that charge nothing for them; writes of an hour are never taken for 5 minutes.
        """
        if (write_1h and self.write_1h is None) or (searches and self.search is None):
            return None
        read_rate = self.input if self.read is None else self.read
        write_rate = self.input if self.write_5m is None else self.write_5m
        return Cost(
            input * self.input / MILLION,
            write_5m * write_rate / MILLION,
            write_1h * (self.write_1h or 0.0) / MILLION,
            read * read_rate / MILLION,
            output * self.output / MILLION,
            searches * (self.search or 0.0),
        )
