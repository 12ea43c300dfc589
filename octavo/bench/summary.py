"""The figures of one load: latencies, rates, goodput and what the prefix cache gave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.record import Record
from octavo.bench.spread import Spread
from octavo.core.errors import ConfigError

OBJECTIVES = ("ttft", "tpot", "e2el")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One load, told. Rates are of completed requests, over `duration_seconds`.

    `good`: completed requests that met every objective; None without objectives.
    `errors`: how many requests failed with which message.
    """

    requests: int
    completed: int
    good: int | None
    duration_seconds: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    latencies: Mapping[str, Spread]
    errors: Mapping[str, int]

    @property
    def failed(self) -> int:
        return self.requests - self.completed

    @property
    def hit_rate(self) -> float | None:
        """Prompt tokens that came from the cache, of all prompt tokens."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    def per_second(self, amount: float) -> float | None:
        return amount / self.duration_seconds if self.duration_seconds > 0 else None

    def figures(self) -> dict[str, Any]:
        """Every figure by a name with its unit."""
        rates = {
            "request_throughput_per_s": self.per_second(self.completed),
            "input_token_throughput_per_s": self.per_second(self.input_tokens),
            "output_token_throughput_per_s": self.per_second(self.output_tokens),
            "total_token_throughput_per_s": self.per_second(self.input_tokens + self.output_tokens),
        }
        if self.good is not None:
            rates["request_goodput_per_s"] = self.per_second(self.good)
        return {
            "requests": self.requests,
            "completed": self.completed,
            "failed": self.failed,
            "errors": dict(self.errors),
            "duration_s": self.duration_seconds,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            **rates,
            "saved_prefill_tokens": self.cached_tokens,
            "prefix_hit_rate": self.hit_rate,
            **{f"{name}_ms": spread.figures() for name, spread in self.latencies.items()},
        }


def summarise(records: Sequence[Record], *, goodput: Mapping[str, float] | None = None) -> Summary:
    """The figures of `records`, from the first one sent to the last one ended."""
    done = [one for one in records if one.completed]
    ends = [one.ended_at for one in records if one.ended_at is not None]
    start = min((one.sent_at for one in records), default=0.0)
    tpots = [one.tpot_seconds for one in done]
    failures = Counter(one.error or "it ended without a token" for one in records
                       if not one.completed)  # fmt: skip
    return Summary(
        requests=len(records),
        completed=len(done),
        good=sum(is_good(one, goodput) for one in done) if goodput else None,
        duration_seconds=max(ends, default=start) - start,
        input_tokens=sum(one.prompt_tokens for one in done),
        output_tokens=sum(one.output_tokens for one in done),
        cached_tokens=sum(one.cached_tokens for one in done),
        latencies={
            "ttft": Spread(one.ttft_seconds for one in done),
            "tpot": Spread(value for value in tpots if value is not None),
            "itl": Spread(gap for one in done for gap in one.itl_seconds),
            "e2el": Spread(one.e2e_seconds for one in done),
        },
        errors=failures,
    )


def objectives(words: Sequence[str]) -> dict[str, float]:
    """["ttft:200", "tpot:50"] → milliseconds by name. Raises ConfigError on anything else."""
    found: dict[str, float] = {}
    for word in (part for each in words for part in re.split(r"[\s,]+", each) if part):
        name, _, limit = word.partition(":")
        if name not in OBJECTIVES or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", limit):
            raise ConfigError(
                f"goodput takes name:milliseconds with a name of {', '.join(OBJECTIVES)}, as in "
                "ttft:200",
                param="goodput",
            )
        if name in found:
            raise ConfigError(f"goodput names {name} twice", param="goodput")
        found[name] = float(limit)
    return found


def is_good(record: Record, limits_ms: Mapping[str, float]) -> bool:
    """Whether a completed request met every objective. A single token has no TPOT to miss."""
    seconds = {
        "ttft": record.ttft_seconds,
        "tpot": record.tpot_seconds or 0.0,
        "e2el": record.e2e_seconds,
    }
    return all(1e3 * seconds[name] <= limit for name, limit in limits_ms.items())
