"""How computed blocks enter the index: full, confirmed, below a published parent, one copy per key.

Owns what is billed and announced on the way. Knows no ranks and allocates nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from octavo.core.batch import DEVICE
from octavo.core.claims import Claims
from octavo.core.events import Sink, Stored
from octavo.core.pool import BlockPool, Entry
from octavo.core.request import Request
from octavo.core.spec import Kind
from octavo.core.table import NOTHING, BlockTable


class Publisher:
    def __init__(
        self,
        pool: BlockPool,
        claims: Claims,
        *,
        kinds: tuple[Kind, ...],
        block_tokens: int,
        sink: Sink | None,
    ) -> None:
        self._pool = pool
        self._claims = claims
        self._kinds = kinds
        self._block = block_tokens
        self._sink = sink

    def publish(self, request: Request, table: BlockTable) -> None:
        """Offer the newly full blocks to the index and point the table at the surviving copies."""
        block = self._block
        chain = request.chain
        chain.extend(request.tokens)
        full = table.stored // block
        first, end = table.offered, min(full, len(chain.keys))
        table.offered = full
        if chain.root is None:
            return
        fresh: list[list[Entry]] = [[] for _ in self._kinds]
        for i in range(first, end):
            key = chain.keys[i]
            parent = chain.keys[i - 1] if i else chain.root
            tokens = array("I", request.tokens[i * block : (i + 1) * block])
            kept = False
            for group, blocks in enumerate(table.groups):
                entry = Entry(chain.root, key, parent, i, tokens, group)
                if blocks[i] == NOTHING or not self._parent_is_own(entry, blocks):
                    continue
                survivor = self._pool.publish(blocks[i], entry)
                if survivor == blocks[i]:
                    fresh[group].append(entry)
                    kept = True
                blocks[i] = survivor
            if (i + 1) * block <= request.n_prompt:
                request.receipt.take_block((i + 1) * block, block, kept=kept)
            self._claims.drop(key, request)
        self._announce(request, fresh)

    def _parent_is_own(self, entry: Entry, blocks: array[int]) -> bool:
        """Closed groups publish only below a published parent that the same table holds.

        So prefixes are whole, and tail-first drops evict a child before its parent. After a clear
        the table's own copy has no key, while another request may have published one again.
        """
        if entry.position == 0 or not self._kinds[entry.group].closed:
            return True
        return self._pool.index(entry.group).get(entry.parent) == blocks[entry.position - 1]

    def _announce(self, request: Request, fresh: list[list[Entry]]) -> None:
        if self._sink is None:
            return
        for entries in fresh:
            for run in _unbroken_runs(entries):
                self._sink(stored_event(run, request.owner))


def _unbroken_runs(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut a list of entries where one is not its predecessor's child."""
    run: list[Entry] = []
    for entry in entries:
        if run and run[-1].key != entry.parent:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def stored_event(run: list[Entry], owner: str = "") -> Stored:
    """One event for blocks of one group, each the child of the one before."""
    tokens = array("I")
    for entry in run:
        tokens.extend(entry.tokens)
    keys = tuple(entry.key for entry in run)
    return Stored(keys, run[0].parent, tokens, run[0].group, DEVICE, owner)
