"""`octavo bench sweep`: what the token budget of a step does to streams and to long prompts."""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from octavo.bench.datasets import Prompt, RandomPrompts
from octavo.bench.driver import Driver
from octavo.bench.local_engine import told
from octavo.bench.record import Record
from octavo.bench.result import Result, shown
from octavo.bench.spread import Spread
from octavo.bench.throughput import warm_up
from octavo.core.errors import ConfigError
from octavo.drawing.figures import Lines, Table
from octavo.engine.build import Built

MOST_BUDGETS = 32
SETTLED_PIECES = 4  # pieces of each stream before the first long prompt comes
STREAM_PROMPT_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """`num_streams` short requests run on while `num_prompts` of `input_len` tokens come, one after
    the other; a stream has at most `stream_len` tokens."""

    num_streams: int
    num_prompts: int
    input_len: int
    stream_len: int
    seed: int

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Point:
    """One budget: `itl` of the streams while long prompts were computed, `ttft` of these."""

    itl: Spread
    ttft: Spread

    def figures(self) -> dict[str, Any]:
        return {
            "itl_ms": {**self.itl.figures(), "max": self.itl.max_ms},
            "ttft_ms": {**self.ttft.figures(), "max": self.ttft.max_ms},
        }


def budgets(text: str) -> list[int]:
    """ "256..2048" → 256, 512, 1024, 2048; "300,900" → these. Raises ConfigError."""
    wrong = ConfigError(
        "max_num_batched_tokens takes a range as in 256..8192, doubled from step to step, or a "
        "list as in 300,900",
        param="max_num_batched_tokens",
    )
    if match := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text):
        low, high = int(match[1]), int(match[2])
        found = [low << i for i in range(MOST_BUDGETS) if low << i <= high]
    elif re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        found = sorted({int(part) for part in text.split(",")})
    else:
        raise wrong
    if not found or found[0] < 1 or len(found) > MOST_BUDGETS:
        raise wrong
    return found


def sweep(
    open_with: Callable[[int], Built],
    steps: Sequence[int],
    settings: SweepSettings,
    *,
    vocabulary: Sequence[int],
) -> Result:
    """`open_with` loads the model with that budget. Raises ConfigError if a request fails."""
    points: dict[int, Point] = {}
    facts: dict[str, Any] = {}
    for budget in steps:
        built = open_with(budget)
        facts = facts or told(built.info)
        points[budget] = measured(built, settings, vocabulary=vocabulary)
        del built
        gc.collect()  # the last engine's weights and pool, before there are the next one's
    facts.pop("max_num_batched_tokens")
    return Result(
        name="sweep",
        settings={**settings.values(), **facts},
        figures={str(budget): point.figures() for budget, point in points.items()},
        tables=(table(points),),
        plots=(
            curve(points, "ITL of running streams, P99", lambda point: point.itl.percentile_ms(99)),
            curve(points, "TTFT of long prompts, median", lambda point: point.ttft.median_ms),
        ),
    )


def measured(built: Built, settings: SweepSettings, *, vocabulary: Sequence[int]) -> Point:
    """Streams first; when all of them run, long prompts, each after the last one's first token."""
    source = random.Random(settings.seed)
    shapes = (
        RandomPrompts(num_prompts=settings.num_streams, input_len=STREAM_PROMPT_TOKENS,
                      output_len=settings.stream_len),
        RandomPrompts(num_prompts=settings.num_prompts, input_len=settings.input_len,
                      output_len=1),
    )  # fmt: skip
    short, long = (shape.prompts(source, vocabulary) for shape in shapes)
    warm_up(built, Prompt(short[0].token_ids, 2))
    driver = Driver(built.engine)
    streams = [driver.submit(prompt) for prompt in short]
    while all(each.ended_at is None for each in streams) and any(
        len(each.piece_times) < SETTLED_PIECES for each in streams
    ):
        driver.step()
    arrivals = []
    for prompt in long:
        arrivals.append(driver.submit(prompt))
        while arrivals[-1].ended_at is None:
            driver.step()
    outlived = all(each.ended_at is None for each in streams)
    for each in streams:
        driver.end(each)
    while driver.busy:
        driver.step()
    _check([*streams, *arrivals], outlived=outlived)
    start, end = arrivals[0].sent_at, arrivals[-1].piece_times[0]
    gaps = (gap for each in streams for gap in gaps_within(each, start, end))
    return Point(Spread(gaps), Spread(each.ttft_seconds for each in arrivals))


def gaps_within(record: Record, start: float, end: float) -> list[float]:
    """Times between two pieces, the later of which came after `start` and not after `end`."""
    pairs = pairwise(record.piece_times)
    return [later - earlier for earlier, later in pairs if start < later <= end]


def _check(records: Sequence[Record], *, outlived: bool) -> None:
    failed = next((each.error for each in records if each.error is not None), None)
    if failed is not None:
        raise ConfigError(f"a request of the sweep failed: {failed}")
    if not outlived:
        raise ConfigError(
            "a stream ended before the long prompts were computed; raise stream_len, or lower "
            "num_prompts or input_len",
            param="stream_len",
        )


def table(points: Mapping[int, Point]) -> Table:
    """One row for each budget, in milliseconds."""
    columns = ("tokens a step", "ITL median", "ITL P99", "ITL max", "TTFT median", "TTFT max")
    return Table(
        "Running streams while long prompts come, ms",
        columns,
        tuple(
            (
                shown(budget),
                shown(point.itl.median_ms),
                shown(point.itl.percentile_ms(99)),
                shown(point.itl.max_ms),
                shown(point.ttft.median_ms),
                shown(point.ttft.max_ms),
            )
            for budget, point in points.items()
        ),
    )


def curve(points: Mapping[int, Point], title: str, pick: Callable[[Point], float | None]) -> Lines:
    line = [(float(budget), pick(point) or 0.0) for budget, point in points.items()]
    return Lines(title=title, x_label="tokens a step", y_label="ms", series={title: line},
                 log_x=True)  # fmt: skip
