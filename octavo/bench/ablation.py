"""`octavo bench ablate`: one load with one mechanism off at a time, and what each is worth."""

from __future__ import annotations

import gc
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from octavo.bench.datasets import Prompt
from octavo.bench.driver import run
from octavo.bench.local_engine import told
from octavo.bench.result import Result, failures, percent, shown
from octavo.bench.summary import Summary, summarise
from octavo.bench.throughput import check_completed, warm_up
from octavo.core import keys
from octavo.core.errors import ConfigError, OctavoError
from octavo.drawing.figures import Bars, Table
from octavo.engine.build import Built
from octavo.engine.stats import EngineStats

NATIVE = "native"
ALL_ON = "all on"


@dataclass(frozen=True, slots=True)
class Variant:
    """A name, and the engine options that make it."""

    name: str
    options: Mapping[str, Any]


VARIANTS = (
    Variant("max_tokens reserved", {"allocator": "max_length"}),
    Variant("powers of two reserved", {"allocator": "power_of_two"}),
    Variant("static batching", {"static_batching": True}),
    Variant("whole prefills", {"enable_chunked_prefill": False}),
    Variant("no prefix cache", {"enable_prefix_caching": False}),
    Variant("no in-flight sharing", {"share_in_flight": False}),
)
NO_KERNELS = Variant("no native kernels", {"attention_backend": "torch"})
SWITCHED = tuple(sorted({name for one in VARIANTS for name in one.options}))
NOT_MEASURED = (
    "Not measured, since the engine cannot switch them off: the KV cache as such, attention "
    "without materialised scores, copy-on-write.",
    "Without the prefix cache there is no in-flight sharing either. A static batch takes in those "
    "who wait for a prefix that it computes: with shared prefixes it loses less than it could.",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One variant's round of median duration. Counts are of that round."""

    summary: Summary
    computed_tokens: int
    preemptions: int
    steps: int

    def figures(self) -> dict[str, Any]:
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "summary"}
        return {**self.summary.figures(), **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """`max_tokens`: what each request says it may generate, for which some allocators reserve."""

    max_tokens: int
    num_iters: int


def ablate(
    open_with: Callable[[Mapping[str, Any]], Built],
    prompts: Sequence[Prompt],
    rounds: Rounds,
    *,
    settings: Mapping[str, Any],
) -> Result:
    """`open_with` loads the model with these options beside those that all variants share.

    A variant that cannot be started is named in the notes. Raises ConfigError if nothing completes
    with everything on.
    """
    built = open_with({})
    info = built.info
    outcomes = {ALL_ON: measured(built, prompts, rounds)}
    check_completed(outcomes[ALL_ON].summary)
    notes = list(NOT_MEASURED)
    native = info.backend.startswith(NATIVE)
    del built
    for variant in (*VARIANTS, NO_KERNELS) if native else VARIANTS:
        gc.collect()  # the last engine's weights and pool, before there are the next one's
        try:
            outcomes[variant.name] = measured(open_with(variant.options), prompts, rounds)
        except OctavoError as error:
            notes.append(f"{variant.name}: {error.message}")
    for name, outcome in outcomes.items():
        notes += [f"{name}: {line}" for line in failures(outcome.summary)]
    if not native:
        notes.append(f"{NO_KERNELS.name}: they are not used here in the first place.")
    return Result(
        name="ablate",
        settings={
            **settings,
            "max_tokens": rounds.max_tokens,
            "num_iters": rounds.num_iters,
            **told(info),
        },
        figures={name: outcome.figures() for name, outcome in outcomes.items()},
        tables=(table(outcomes),),
        plots=(
            Bars(
                title="Duration of the same load",
                unit="s",
                bars=[(name, one.summary.duration_seconds) for name, one in outcomes.items()],
            ),
        ),
        notes=notes,
    )


def measured(built: Built, prompts: Sequence[Prompt], rounds: Rounds) -> Outcome:
    """The load `num_iters` times, each time from an empty cache."""
    warm_up(built, prompts[0])
    outcomes = []
    for _ in range(rounds.num_iters):
        built.engine.clear_cache()
        before = built.engine.stats()
        summary = summarise(run(built.engine, prompts, max_tokens=rounds.max_tokens))
        outcomes.append(_outcome(summary, before, built.engine.stats()))
    typical = statistics.median_low(one.summary.duration_seconds for one in outcomes)
    return next(one for one in outcomes if one.summary.duration_seconds == typical)


def _outcome(summary: Summary, before: EngineStats, after: EngineStats) -> Outcome:
    return Outcome(
        summary,
        computed_tokens=after.computed_tokens - before.computed_tokens,
        preemptions=after.preemptions - before.preemptions,
        steps=after.steps - before.steps,
    )


def table(outcomes: Mapping[str, Outcome]) -> Table:
    """One row for each variant; `×` is its duration over that with everything on."""
    base = outcomes[ALL_ON].summary.duration_seconds
    rows = tuple(
        (
            name,
            shown(one.summary.duration_seconds),
            shown(one.summary.duration_seconds / base) if base else "–",
            shown(one.steps),
            shown(one.computed_tokens),
            percent(one.summary.hit_rate),
            shown(one.preemptions),
            shown(one.summary.latencies["ttft"].percentile_ms(99), 0),
            shown(one.summary.latencies["itl"].percentile_ms(99), 0),
            shown(one.summary.failed),
        )
        for name, one in outcomes.items()
    )
    columns = ("", "s", "×", "steps", "computed", "hits", "preempted", "TTFT", "ITL", "failed")
    title = "What each mechanism is worth (computed: tokens; TTFT and ITL: P99 in ms)"
    return Table(title, columns, rows)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that this benchmark sets itself."""
    for name in SWITCHED:
        if name in options:
            raise ConfigError(f"ablate switches {name} itself; leave it out", param=name)


def tight_blocks(prompts: Sequence[Prompt], *, block_tokens: int, seats: int, groups: int) -> int:
    """KV blocks that just suffice with everything on, so that what wastes them shows.

    What prompts have in common, once, and the largest rest of a request for each of `seats`; in
    each of `groups` layer groups.
    """
    root = keys.root(b"tight")
    chains = [keys.block_keys(root, one.token_ids, block_tokens) for one in prompts]
    uses = Counter(key for chain in chains for key in chain)
    shared = {key for key, n in uses.items() if n > 1}
    rest = 0
    for prompt, chain in zip(prompts, chains, strict=True):
        n_blocks = -(-(len(prompt.token_ids) + prompt.output_tokens) // block_tokens)
        rest = max(rest, n_blocks - len(shared.intersection(chain)))
    return groups * (len(shared) + min(seats, len(prompts)) * rest)


def kv_groups(model: str, block_tokens: int) -> int:
    """How many layer groups with block tables of their own a model has. Reads no weights."""
    from octavo.compute.hub import resolve
    from octavo.compute.weights import open_source

    return len(open_source(resolve(model)).config().kv_spec("float32", block_tokens).groups)
