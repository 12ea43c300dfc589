"""`octavo bench ablate`: one load with one mechanism off at a time, and what each is worth."""

from __future__ import annotations

import gc
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from octavo.bench.datasets import Prompt
from octavo.bench.driver import run
from octavo.bench.local_engine import told
from octavo.bench.result import Result, failures, percent, shown
from octavo.bench.summary import Summary, summarise
from octavo.bench.throughput import check_completed, warm_up
from octavo.compute.recompute import Recompute
from octavo.core import keys
from octavo.core.errors import ConfigError, OctavoError
from octavo.drawing.figures import Bars, Table
from octavo.engine.build import Built
from octavo.engine.stats import EngineStats

NATIVE = "native"
ALL_ON = "all on"


@dataclass(frozen=True, slots=True)
class Variant:
    """A name, and the engine options that make it. `against`: what it is compared with, whose
    options its own contain; `most_rounds`: for one that takes long."""

    name: str
    options: Mapping[str, Any]
    against: str = ALL_ON
    most_rounds: int | None = None


NO_CACHE = Variant("no prefix cache", {"enable_prefix_caching": False})
VARIANTS = (
    Variant("max_tokens reserved", {"allocator": "max_length"}),
    Variant("powers of two reserved", {"allocator": "power_of_two"}),
    Variant("static batching", {"static_batching": True}),
    Variant("whole prefills", {"enable_chunked_prefill": False}),
    NO_CACHE,
    Variant("no in-flight sharing", {"share_in_flight": False}),
    Variant("no KV cache", {**NO_CACHE.options, "kv_cache": False}, NO_CACHE.name, most_rounds=1),
)
NO_COPY_ON_WRITE = Variant(
    "no copy-on-write", {**NO_CACHE.options, "copy_on_write": False}, NO_CACHE.name
)
NO_KERNELS = Variant("no native kernels", {"attention_backend": "torch"})
ALL_SCORES = Variant(
    "all scores at once", {**NO_KERNELS.options, "tiled_scores": False}, NO_KERNELS.name
)
SWITCHED = tuple(sorted({name for one in VARIANTS for name in one.options}))
REMARKS = (
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
    """`max_tokens`: what each request says it may generate, for which some allocators reserve.
    `choices`: how many answers each asks for."""

    max_tokens: int
    num_iters: int
    choices: int = 1


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
    native = info.backend.startswith(NATIVE)
    variants, notes = chosen(native=native, choices=rounds.choices)
    del built
    for variant in variants:
        gc.collect()  # the last engine's weights and pool, before there are the next one's
        fewer = replace(rounds, num_iters=min(rounds.num_iters, variant.most_rounds or 1 << 10))
        try:
            outcomes[variant.name] = measured(open_with(variant.options), prompts, fewer)
        except OctavoError as error:
            notes.append(f"{variant.name}: {error.message}")
    for name, outcome in outcomes.items():
        notes += [f"{name}: {line}" for line in failures(outcome.summary)]
    return Result(
        name="ablate",
        settings={
            **settings,
            "max_tokens": rounds.max_tokens,
            "num_iters": rounds.num_iters,
            "n": rounds.choices,
            **told(info),
        },
        figures={name: outcome.figures() for name, outcome in outcomes.items()},
        tables=(table(outcomes, {one.name: one.against for one in variants}),),
        plots=(
            Bars(
                title="Duration of the same load",
                unit="s",
                bars=[(name, one.summary.duration_seconds) for name, one in outcomes.items()],
            ),
        ),
        notes=notes,
    )


def chosen(*, native: bool, choices: int) -> tuple[list[Variant], list[str]]:
    """The variants that mean something here, and remarks."""
    variants, notes = list(VARIANTS), list(REMARKS)
    if choices > 1:
        variants.append(NO_COPY_ON_WRITE)
    else:
        notes.append(f"{NO_COPY_ON_WRITE.name}: nothing forks; ask for more choices with --n.")
    if native:
        variants += [NO_KERNELS, ALL_SCORES]
    else:
        variants.append(replace(ALL_SCORES, against=ALL_ON))
        notes.append(f"{NO_KERNELS.name}: they are not used here in the first place.")
    notes += [f"{one.name}: × is over {one.against}." for one in variants if one.against != ALL_ON]
    return variants, notes


def measured(built: Built, prompts: Sequence[Prompt], rounds: Rounds) -> Outcome:
    """The load `num_iters` times, each time from an empty cache."""
    warm_up(built, prompts[0])
    outcomes = []
    again = built.runner if isinstance(built.runner, Recompute) else None
    for _ in range(rounds.num_iters):
        built.engine.clear_cache()
        before, recomputed = built.engine.stats(), again.recomputed_tokens if again else 0
        records = run(built.engine, prompts, max_tokens=rounds.max_tokens, choices=rounds.choices)
        outcome = _outcome(summarise(records), before, built.engine.stats())
        if again is not None:
            more = again.recomputed_tokens - recomputed
            outcome = replace(outcome, computed_tokens=outcome.computed_tokens + more)
        outcomes.append(outcome)
    typical = statistics.median_low(one.summary.duration_seconds for one in outcomes)
    return next(one for one in outcomes if one.summary.duration_seconds == typical)


def _outcome(summary: Summary, before: EngineStats, after: EngineStats) -> Outcome:
    return Outcome(
        summary,
        computed_tokens=after.computed_tokens - before.computed_tokens,
        preemptions=after.preemptions - before.preemptions,
        steps=after.steps - before.steps,
    )


def table(outcomes: Mapping[str, Outcome], against: Mapping[str, str]) -> Table:
    """One row for each variant; `×` is its duration over that of what it is compared with."""
    rows = tuple(
        (
            name,
            shown(one.summary.duration_seconds),
            shown(_times(one, outcomes.get(against.get(name, ALL_ON)))),
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


def _times(one: Outcome, base: Outcome | None) -> float | None:
    if base is None or not base.summary.duration_seconds:
        return None
    return one.summary.duration_seconds / base.summary.duration_seconds


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
