"""`octavo bench throughput`: a load all at once through an engine in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.bench.datasets import Prompt
from octavo.bench.driver import run
from octavo.bench.local_engine import told
from octavo.bench.record import Record
from octavo.bench.result import Result, distributions, failures, latency_table, load_table
from octavo.bench.summary import Summary, summarise
from octavo.core.errors import ConfigError
from octavo.engine.build import Built


def throughput(built: Built, prompts: Sequence[Prompt], *, settings: Mapping[str, Any]) -> Result:
    """Raises ConfigError if not one request completed."""
    summary = summarise(run(built.engine, prompts))
    check_completed(summary)
    return Result(
        name="throughput",
        settings={**settings, **told(built.info)},
        figures=summary.figures(),
        tables=(load_table(summary), latency_table(summary.latencies)),
        plots=distributions(summary.latencies),
        notes=failures(summary),
    )


def check_completed(summary: Summary) -> None:
    """A load of which nothing came through has no figures to show."""
    if not summary.completed:
        reason = next(iter(summary.errors), "there were none")
        raise ConfigError(f"none of the {summary.requests} requests completed: {reason}")


def warm_up(built: Built, prompt: Prompt) -> Record:
    """One request that does not count, so that the first one that does pays for no first time."""
    (record,) = run(built.engine, [prompt])
    built.engine.clear_cache()
    return record
