"""The block pool against a plain model, driven by hypothesis."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.core.events import Removed
from octavo.core.pool import BlockPool, Entry

ROOT = b"root"
TOTAL = 7


class PoolMachine(RuleBasedStateMachine):
    """Holders are lists of ids, each one reference; chains are published tail after head."""

    @initialize()
    def start(self) -> None:
        self.removed: list[Removed] = []
        self.pool = BlockPool(TOTAL, sink=self.removed.append)  # type: ignore[arg-type]
        self.holders: list[list[int]] = []
        self.published: dict[bytes, int] = {}

    def _forget_removed(self) -> None:
        for event in self.removed:
            del self.published[event.key]
        self.removed.clear()

    @rule(n=st.integers(0, TOTAL))
    def allocate(self, n: int) -> None:
        if n > self.pool.available:
            with pytest.raises(AssertionError):
                self.pool.allocate(n)
            return
        free = self.pool.free
        evictions = self.pool.evictions
        ids = self.pool.allocate(n)
        assert len(set(ids)) == n
        assert not any(block in held for held in self.holders for block in ids)
        assert self.pool.evictions - evictions == max(0, n - free)  # free ones go first
        self._forget_removed()
        if ids:
            self.holders.append(ids)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.holders))
        self.pool.share(held)
        self.holders.append(list(held))

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.published.values())))
        self.pool.share([block])
        self.holders.append([block])

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        held = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.pool.drop(held)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), name=st.integers(0, 5))
    def publish(self, data: st.DataObject, name: int) -> None:
        held = data.draw(st.sampled_from(self.holders))
        at = data.draw(st.integers(0, len(held) - 1))
        if self.pool.is_published(held[at]):
            return
        key = b"key %d" % name
        survivor = self.pool.publish(held[at], Entry(ROOT, key, ROOT, 0, array("I", [name]), 0))
        assert survivor == self.published.get(key, held[at])
        self.published.setdefault(key, survivor)
        held[at] = survivor

    @rule()
    def clear(self) -> None:
        self.pool.clear(None)
        self._forget_removed()
        assert not self.published

    @invariant()
    def ledger_agrees(self) -> None:
        refs = [0] * (TOTAL + 1)
        for held in self.holders:
            for block in held:
                refs[block] += 1
        self.pool.check(refs)
        assert self.pool.index(0) == self.published
        cached = [b for b in self.published.values() if refs[b] == 0]
        assert self.pool.cached == len(cached)
        assert self.pool.idle(range(1, TOTAL + 1)) == TOTAL - sum(1 for r in refs if r)


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase


def test_eviction_is_least_recently_used_and_tail_first() -> None:
    pool = BlockPool(4)
    head, tail = pool.allocate(2)
    pool.publish(head, Entry(ROOT, b"head", ROOT, 0, array("I"), 0))
    pool.publish(tail, Entry(ROOT, b"tail", b"head", 1, array("I"), 0))
    (other,) = pool.allocate(1)
    pool.publish(other, Entry(ROOT, b"other", ROOT, 0, array("I"), 0))
    pool.drop([head, tail])
    pool.drop([other])
    pool.allocate(1)  # the free one
    assert pool.allocate(1) == [tail]
    assert pool.allocate(1) == [head]
    assert pool.allocate(1) == [other]


def test_dropping_more_often_than_held_is_loud() -> None:
    pool = BlockPool(2)
    ids = pool.allocate(1)
    pool.drop(ids)
    with pytest.raises(AssertionError):
        pool.drop(ids)


@pytest.mark.parametrize("published", [True, False])
def test_one_holder_cannot_drop_a_block_twice_at_once(published: bool) -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    if published:
        pool.publish(block, Entry(ROOT, b"k", ROOT, 0, array("I"), 0))
    with pytest.raises(AssertionError):
        pool.drop([block, block])
    assert pool.available == 2  # given back once, not twice
    assert len(set(pool.allocate(2))) == 2


def test_eviction_says_how_long_a_block_lay_unused() -> None:
    events: list[Removed] = []
    pool = BlockPool(1, sink=events.append)  # type: ignore[arg-type]
    ids = pool.allocate(1)
    pool.publish(ids[0], Entry(ROOT, b"k", ROOT, 0, array("I"), 0))
    pool.now = 10.0
    pool.drop(ids)
    pool.now = 13.5
    pool.allocate(1)
    assert events == [Removed(b"k", 0, 0, "evicted", 3.5)]


def test_clearing_one_root_leaves_the_others_and_takes_descendants() -> None:
    pool = BlockPool(4)
    ids = pool.allocate(4)
    chains = [(b"r1", b"a", b"r1"), (b"r1", b"b", b"a"), (b"r2", b"c", b"r2"), (b"r2", b"d", b"c")]
    for block, (root, key, parent) in zip(ids, chains, strict=True):
        pool.publish(block, Entry(root, key, parent, int(parent != root), array("I"), 0))
    pool.clear(b"r1")
    assert set(pool.index(0)) == {b"c", b"d"}
    pool.drop(ids)
    assert (pool.free, pool.cached) == (2, 2)
