"""`octavo bench serve`: requests arrive at a server over HTTP at their own times."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.arrivals import arrival_seconds
from octavo.bench.client import Client, checked_url
from octavo.bench.datasets import Prompt
from octavo.bench.record import Record
from octavo.bench.result import Result, distributions, failures, latency_table, load_table
from octavo.bench.summary import summarise
from octavo.bench.throughput import check_completed
from octavo.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """`max_concurrency`: requests on their way at once; more wait, unsent. None: no bound."""

    base_url: str
    model: str | None
    request_rate: float
    burstiness: float
    max_concurrency: int | None
    timeout_seconds: float
    goodput: Mapping[str, float]
    seed: int

    def check(self) -> None:
        """Raises ConfigError for what would be found wrong only later."""
        checked_url(self.base_url)
        arrival_seconds(0, self.request_rate, burstiness=self.burstiness, seed=0)

    def values(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__slots__}
        return {**told, "request_rate": str(self.request_rate), "goodput": dict(self.goodput)}


def measured_by(
    traffic: Traffic,
    prompts: Sequence[Prompt],
    *,
    warm_ups: Sequence[Prompt],
    settings: Mapping[str, Any],
) -> Result:
    """Raises ConfigError if the server does not answer or not one request completed."""
    records, model = asyncio.run(measure(prompts, traffic, warm_ups=warm_ups))
    summary = summarise(records, goodput=traffic.goodput)
    check_completed(summary)
    return Result(
        name="serve",
        settings={**settings, **traffic.values(), "model": model},
        figures=summary.figures(),
        tables=(load_table(summary), latency_table(summary.latencies)),
        plots=distributions(summary.latencies),
        notes=[*failures(summary), *short_answers(prompts, records)],
    )


async def measure(
    prompts: Sequence[Prompt], traffic: Traffic, *, warm_ups: Sequence[Prompt]
) -> tuple[list[Record], str | None]:
    """The records of `prompts` in their order, and the model that answered."""
    offsets = arrival_seconds(
        len(prompts), traffic.request_rate, burstiness=traffic.burstiness, seed=traffic.seed
    )
    client = Client(
        traffic.base_url,
        model=traffic.model,
        timeout_seconds=traffic.timeout_seconds,
        clock=time.perf_counter,
    )
    async with contextlib.aclosing(client):
        await client.greet()
        for prompt in warm_ups:
            warm = await client.ask(prompt)
            if not warm.completed:
                raise ConfigError(f"the warm-up request failed: {warm.error}")
        records = await send(
            client.ask, prompts, offsets=offsets, max_concurrency=traffic.max_concurrency
        )
    return records, client.model


async def send(
    ask: Callable[[Prompt], Awaitable[Record]],
    prompts: Sequence[Prompt],
    *,
    offsets: Sequence[float],
    max_concurrency: int | None,
) -> list[Record]:
    """`ask` for each prompt at its time, or as soon afterwards as there is a place."""
    places = asyncio.Semaphore(max_concurrency or len(prompts))  # its queue is first come first
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def one(prompt: Prompt, offset: float) -> Record:
        await asyncio.sleep(start + offset - loop.time())
        async with places:
            return await ask(prompt)

    return list(await asyncio.gather(*map(one, prompts, offsets)))


def short_answers(prompts: Sequence[Prompt], records: Sequence[Record]) -> list[str]:
    """A note if the server generated other numbers of tokens than asked for."""
    wrong = sum(
        record.completed and record.output_tokens != prompt.output_tokens
        for prompt, record in zip(prompts, records, strict=True)
    )
    return [f"{wrong} completed with another number of tokens than asked for"] if wrong else []
