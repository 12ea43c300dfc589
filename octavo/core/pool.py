"""The ledger of block ids: who holds how many references, which ids carry a key, what is free.

Knows no requests, no bytes and no clock; `now` is set by its owner. Ids run from 1 to `total`.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from octavo.core.batch import DEVICE
from octavo.core.block_ages import BlockAges
from octavo.core.events import Removed, Sink
from octavo.core.keys import Key
from octavo.core.table import NOTHING


class Entry(NamedTuple):
    """A published block's place in the chain."""

    root: Key
    key: Key
    parent: Key
    position: int  # in blocks from the start of the sequence; 0 has the root as its parent
    tokens: array[int]
    group: int


class BlockPool:
    """free + cached + referenced = total. Cached: no reference, but a key that may still be hit."""

    def __init__(self, total: int, *, groups: int = 1, sink: Sink | None = None) -> None:
        self.total = total
        self.now = 0.0
        self.evictions = 0
        self.shared = 0  # blocks with more than one reference
        self.ages = BlockAges(total)
        self._sink = sink
        self._index: list[dict[Key, int]] = [{} for _ in range(groups)]
        self._refs = [0] * (total + 1)
        self._entries: list[Entry | None] = [None] * (total + 1)
        self._free = list(range(total, 0, -1))
        self._cached: OrderedDict[int, float] = OrderedDict()  # id -> since when; oldest first

    # -- queries ----------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Blocks that an allocation can take: free, or cached and evictable."""
        return len(self._free) + len(self._cached)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    def index(self, group: int) -> dict[Key, int]:
        """Key to block id in one group. Read only, in order of publication."""
        return self._index[group]

    def idle(self, ids: Iterable[int]) -> int:
        """How many of the ids are cached: sharing them takes them from `available`."""
        refs = self._refs
        return sum(1 for block in ids if block != NOTHING and refs[block] == 0)

    def holders(self, block: int) -> int:
        return self._refs[block]

    def freed_by(self, tables: Iterable[Iterable[int]]) -> int:
        """Blocks that would become available if all of `tables` were dropped."""
        held = Counter(block for ids in tables for block in ids if block != NOTHING)
        return sum(1 for block, n in held.items() if self._refs[block] == n)

    def is_published(self, block: int) -> bool:
        return self._entries[block] is not None

    def entries(self) -> Iterator[Entry]:
        """All published blocks; in each group parents come before children."""
        for index in self._index:
            for block in index.values():
                entry = self._entries[block]
                assert entry is not None
                yield entry

    # -- changes ----------------------------------------------------------------------------

    def allocate(self, n: int) -> list[int]:
        """`n` blocks, one reference each: free ones first, then the longest idle cached ones."""
        free = self._free
        assert n <= self.available, "allocation was not checked"
        n_free = min(n, len(free))
        taken = free[len(free) - n_free :][::-1]
        del free[len(free) - n_free :]
        for _ in range(n - n_free):
            block, since = self._cached.popitem(last=False)
            self._forget(block, "evicted", self.now - since)
            self.evictions += 1
            self.ages.evicted(block, self.now, self.now - since)
            taken.append(block)
        for block in taken:
            self._refs[block] = 1
        return taken

    def share(self, ids: Iterable[int]) -> None:
        """One more reference on each id; a cached block comes back to life."""
        refs = self._refs
        for block in ids:
            if block == NOTHING:
                continue
            if refs[block] == 0:
                self.ages.reused(self.now - self._cached.pop(block))
            elif refs[block] == 1:
                self.shared += 1
            refs[block] += 1

    def drop(self, ids: Sequence[int]) -> None:
        """One reference less on each, the tail first: a child is evicted before its parent."""
        refs = self._refs
        for block in reversed(ids):
            if block == NOTHING:
                continue
            left = refs[block] - 1
            assert left >= 0, "a block was dropped more often than it was held"
            refs[block] = left
            if left == 1:
                self.shared -= 1
            elif left == 0:
                if self._entries[block] is None:
                    self._free.append(block)
                else:
                    self._cached[block] = self.now

    def publish(self, block: int, entry: Entry) -> int:
        """The canonical block of the entry's key: `block` itself, or the one already there.

        In the second case the reference moves from `block` to the canonical one.
        """
        index = self._index[entry.group]
        existing = index.get(entry.key)
        if existing is None:
            index[entry.key] = block
            self._entries[block] = entry
            self.ages.published(block, self.now)
            return block
        if existing != block:
            self.share((existing,))
            self.drop((block,))
        return existing

    def clear(self, root: Key | None) -> None:
        """Remove every key, or those under `root`. References stay; idle blocks become free."""
        for index in self._index:
            for block in list(index.values()):
                entry = self._entries[block]
                assert entry is not None
                if root is None or entry.root == root:
                    since = self._cached.pop(block, None)
                    self._forget(block, "cleared", 0.0 if since is None else self.now - since)
                    if since is not None:
                        self._free.append(block)

    def _forget(self, block: int, reason: str, idle_seconds: float) -> None:
        entry = self._entries[block]
        assert entry is not None
        self._entries[block] = None
        del self._index[entry.group][entry.key]
        if self._sink is not None:
            self._sink(Removed(entry.key, entry.group, DEVICE, reason, idle_seconds))

    # -- invariants -------------------------------------------------------------------------

    def check(self, held: Sequence[int]) -> None:
        """Assert the ledger against `held`, the true number of holders of each id."""
        assert list(held) == self._refs, "reference counts differ from the tables"
        n_held = sum(1 for n in self._refs[1:] if n)
        assert len(self._free) + len(self._cached) + n_held == self.total
        assert self.shared == sum(1 for n in self._refs if n > 1)
        assert len(set(self._free)) == len(self._free)
        assert all(self._refs[b] == 0 and self._entries[b] is None for b in self._free)
        assert all(self._refs[b] == 0 and self._entries[b] is not None for b in self._cached)
        assert sum(map(len, self._index)) == sum(e is not None for e in self._entries)
        for group, index in enumerate(self._index):
            for key, block in index.items():
                entry = self._entries[block]
                assert entry is not None
                assert (entry.key, entry.group) == (key, group)

    def check_closed(self, group: int) -> None:
        """Assert that a closed group's index holds whole prefixes and loses children first."""
        index = self._index[group]
        age = {block: i for i, block in enumerate(self._cached)}
        for block in index.values():
            entry = self._entries[block]
            assert entry is not None
            parent = index.get(entry.parent)
            if parent is None:
                assert entry.position == 0, "a published block lost its parent"
            elif parent in age:
                assert age.get(block, len(age)) < age[parent], "a parent would go before its child"
