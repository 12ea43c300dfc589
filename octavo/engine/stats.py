"""Plain numbers about a running engine, taken in one go. Owns their names; formats nothing."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.block_ages import AgeSpreads
from octavo.core.histogram import Histogram, Spread
from octavo.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Since the start, unless it is a state. Tokens and blocks as the names say.

    `step_tokens`: by the tokens that a step computed.
    """

    running: int
    waiting: int
    steps: int
    sequences: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    prompt_tokens: int
    prompt_read_tokens: int
    computed_tokens: int
    generated_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    drafted_by_place: tuple[int, ...]
    accepted_by_place: tuple[int, ...]
    preemptions: int
    stalls: int
    evictions: int
    copied_blocks: int
    total_blocks: int
    free_blocks: int
    cached_blocks: int
    held_blocks: int
    shared_blocks: int
    pinned_blocks: int
    block_ages: AgeSpreads
    step_tokens: Spread

    @property
    def prefix_hit_rate(self) -> float:
        """Prompt tokens taken from the cache, of those asked for; 0 before the first request."""
        return self.prefix_hit_tokens / max(1, self.prefix_query_tokens)

    @classmethod
    def of(cls, scheduler: Scheduler, step_tokens: Histogram) -> EngineStats:
        """Between two steps, on the thread that steps."""
        totals, cache = scheduler.totals, scheduler.cache
        pool = cache.pool
        free, cached = pool.free, pool.cached
        return cls(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            steps=totals.steps,
            sequences=totals.sequences,
            prefix_query_tokens=totals.prefix_query_tokens,
            prefix_hit_tokens=totals.prefix_hit_tokens,
            prompt_tokens=totals.prompt_tokens,
            prompt_read_tokens=totals.prompt_read_tokens,
            computed_tokens=totals.computed_tokens,
            generated_tokens=totals.generated_tokens,
            drafted_tokens=totals.drafted_tokens,
            accepted_tokens=totals.accepted_tokens,
            drafted_by_place=tuple(totals.drafted_by_place),
            accepted_by_place=tuple(totals.accepted_by_place),
            preemptions=totals.preemptions,
            stalls=totals.stalls,
            evictions=pool.evictions,
            copied_blocks=cache.copies,
            total_blocks=pool.total,
            free_blocks=free,
            cached_blocks=cached,
            held_blocks=pool.total - free - cached,
            shared_blocks=pool.shared,
            pinned_blocks=cache.pins.blocks,
            block_ages=pool.ages.spreads(),
            step_tokens=step_tokens.spread(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What emptying the cache did. `held_blocks` are in use or pinned: they stay where they are
    until they are let go, but nobody finds them any more."""

    freed_blocks: int
    held_blocks: int
