"""What one step costs outside the model: schedule and update at 256 running requests."""

from __future__ import annotations

import random
import statistics
import time

from benchmarks.record import write
from octavo.core import (
    Full,
    Group,
    KVCache,
    KVSpec,
    Limits,
    Request,
    RowResult,
    Scheduler,
    StepResult,
    TokenChain,
)

ROOT = b"r" * 32


def desk(n_running: int, *, prompt_tokens: int, shared: bool) -> Scheduler:
    """A scheduler with `n_running` requests that have all been prefilled."""
    spec = KVSpec((Group(Full(), (0,), 1, 1, "float32"),), 16)
    cache = KVCache(spec, n_running * (prompt_tokens // 16 + 40), step_tokens=8192)
    scheduler = Scheduler(cache, max_num_batched_tokens=8192, max_num_seqs=n_running)
    rnd = random.Random(0)
    common = [rnd.randrange(50_000) for _ in range(prompt_tokens)]
    for i in range(n_running):
        own = [i, *common[1:]] if not shared else [*common, i]
        limits = Limits(600)
        scheduler.add(Request(f"{i}", own, limits=limits, chain=TokenChain(ROOT, 16)), 0.0)
    while any(r.receipt.first_token_at is None for r in scheduler.running) or scheduler.waiting:
        step(scheduler)
    return scheduler


def step(scheduler: Scheduler) -> tuple[float, float]:
    """One step with a runner that takes no time: milliseconds of schedule and of update."""
    start = time.perf_counter()
    batch = scheduler.schedule(0.0)
    planned = time.perf_counter()
    result = StepResult([RowResult((7,)) if row.samples else RowResult() for row in batch.rows])
    ran = time.perf_counter()
    scheduler.update(batch, result, 0.0)
    done = time.perf_counter()
    return (planned - start) * 1e3, (done - ran) * 1e3


def main() -> None:
    figures: dict[str, float] = {}
    for n in (1, 32, 256):
        scheduler = desk(n, prompt_tokens=1000, shared=False)
        steps = [step(scheduler) for _ in range(300)]
        plan = statistics.median(s for s, _ in steps)
        update = statistics.median(u for _, u in steps)
        figures[f"{n} running: schedule, ms"] = round(plan, 3)
        figures[f"{n} running: update, ms"] = round(update, 3)
        figures[f"{n} running: both, ms"] = round(plan + update, 3)
    start = time.perf_counter()
    desk(256, prompt_tokens=16_000, shared=True)
    figures["256 equal 16,000-token prompts to first token, ms in all"] = round(
        (time.perf_counter() - start) * 1e3, 1
    )
    write("scheduler_step", figures)


if __name__ == "__main__":
    main()
