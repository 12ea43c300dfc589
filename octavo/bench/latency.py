"""`octavo bench latency`: one batch of equal requests, over and over, from start to end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.datasets import RandomPrompts
from octavo.bench.driver import run
from octavo.bench.local_engine import told
from octavo.bench.result import Result, distributions, failures, latency_table, shown
from octavo.bench.spread import Spread
from octavo.bench.summary import summarise
from octavo.bench.throughput import check_completed
from octavo.core.errors import ConfigError
from octavo.drawing.figures import Lines, Table
from octavo.engine.build import Built

PERCENTILES = (10, 25, 50, 75, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """`num_iters_warmup` rounds do not count; each of `num_iters` has prompts of its own."""

    batch_size: int
    input_len: int
    output_len: int
    num_iters_warmup: int
    num_iters: int
    seed: int

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def latency(built: Built, settings: LatencySettings, *, vocabulary: Sequence[int]) -> Result:
    """Raises ConfigError if a round did not complete: its time would mean nothing."""
    shape = RandomPrompts(
        num_prompts=settings.batch_size,
        input_len=settings.input_len,
        output_len=settings.output_len,
    )
    source = random.Random(settings.seed)
    records, rounds = [], []
    for i in range(settings.num_iters_warmup + settings.num_iters):
        batch = run(built.engine, shape.prompts(source, vocabulary))
        summary = summarise(batch)
        check_completed(summary)
        if summary.failed:
            raise ConfigError(f"a round did not complete: {failures(summary)[0]}")
        if i >= settings.num_iters_warmup:
            records += batch
            rounds.append(summary.duration_seconds)
    whole, each = Spread(rounds), summarise(records).latencies
    at = {f"p{q}": whole.percentile_ms(q) for q in PERCENTILES}
    told_rows = [("mean", shown(whole.mean_ms)), *((f"P{q[1:]}", shown(v)) for q, v in at.items())]
    return Result(
        name="latency",
        settings={**settings.values(), **told(built.info)},
        figures={
            "batch_latency_ms": {"mean": whole.mean_ms, **at},
            **{f"{name}_ms": spread.figures() for name, spread in each.items()},
        },
        tables=(
            Table("Latency of a whole batch, ms", ("", "ms"), tuple(told_rows)),
            latency_table(each),
        ),
        plots=(
            Lines(
                title="Latency of a whole batch",
                x_label="ms",
                y_label="% at most this",
                series={"batch": whole.steps_ms()},
            ),
            *distributions(each),
        ),
    )
