"""Random requests through the real core: right tokens, no leak, no starvation, no livelock."""

from __future__ import annotations

import pytest

from octavo.core.policies import MAX_LENGTH, POWER_OF_TWO, Policies
from tests.core.traffic import Traffic

VARIANTS = {
    "cache off": {"uncached": 1.0},
    "cache on": {"uncached": 0.0},
    "claims off": {"policies": Policies(share_in_flight=False)},
    "reserve the maximum": {"policies": Policies(allocator=MAX_LENGTH)},
    "reserve powers of two": {"policies": Policies(allocator=POWER_OF_TWO)},
    "static batching": {"policies": Policies(continuous=False)},
    "whole prompts": {"policies": Policies(splits=False)},
    "all of these": {
        "policies": Policies(
            allocator=MAX_LENGTH, splits=False, continuous=False, share_in_flight=False
        )
    },
}


@pytest.mark.parametrize("tens", range(34))
def test_20_000_random_requests(tens: int) -> None:
    made = sum(Traffic(seed).run().made for seed in range(tens * 10, tens * 10 + 10))
    assert made >= 600


@pytest.mark.parametrize("name", VARIANTS)
def test_every_policy_gives_the_same_answers(name: str) -> None:
    for seed in range(1000, 1030):
        Traffic(seed, 40, **VARIANTS[name]).run()


def test_the_traffic_reaches_what_it_is_meant_to_test() -> None:
    runs = [Traffic(seed).run() for seed in range(40)]
    assert sum(run.scheduler.totals.preemptions for run in runs) > 20
    assert sum(run.scheduler.totals.stalls for run in runs) > 10
    assert sum(run.cache.pool.evictions for run in runs) > 1000
    assert sum(run.cache.copies for run in runs) > 50
    receipts = [request.receipt for run in runs for request in run.finished]
    assert sum(receipt.shared_in_flight for receipt in receipts) > 500
    assert sum(receipt.recomputed for receipt in receipts) > 100
    assert sum(receipt.written_5m for receipt in receipts) > 0
    assert sum(receipt.written_1h for receipt in receipts) > 0


def test_the_same_trace_gives_the_same_batches() -> None:
    assert Traffic(7, 80).run().runner.rows_log == Traffic(7, 80).run().runner.rows_log
