"""How long blocks live and lie unused, by a clock that the test sets."""

from __future__ import annotations

from array import array

from octavo.core.histogram import Spread
from octavo.core.pool import BlockPool, Entry


def publish(pool: BlockPool, block: int, name: bytes) -> None:
    pool.publish(block, Entry(b"root", name, b"root", 0, array("I", [1]), 0))


def upper_edges(spread: Spread) -> list[float]:
    """The bucket of each value, by its upper edge."""
    edges = [*spread.bounds, float("inf")]
    return [edge for edge, n in zip(edges, spread.counts, strict=True) for _ in range(n)]


def test_a_block_that_is_evicted_is_counted_by_both_its_ages() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.now = 100.0
    publish(pool, block, b"a")
    pool.now = 103.0
    pool.drop((block,))
    pool.now = 110.0
    assert pool.allocate(1) == [block]
    ages = pool.ages.spreads()
    assert (ages.lifetime.total, ages.idle.total) == (10.0, 7.0)
    assert (upper_edges(ages.lifetime), upper_edges(ages.idle)) == ([10.0], [10.0])
    assert ages.reuse_gap.n == 0


def test_a_hit_on_an_idle_block_counts_its_gap_and_a_shared_one_has_none() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    publish(pool, block, b"a")
    pool.share((block,))  # in use: no gap
    pool.drop((block, block))
    pool.now = 4.0
    pool.share((block,))
    gap = pool.ages.spreads().reuse_gap
    assert (upper_edges(gap), gap.total) == ([5.0], 4.0)


def test_what_is_cleared_is_not_evicted() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    publish(pool, block, b"a")
    pool.drop((block,))
    pool.clear(None)
    assert pool.allocate(1) == [block]
    assert pool.ages.spreads().lifetime.n == 0
    assert pool.evictions == 0
