"""The KV cache as the scheduler sees it: match, admit, reserve, commit, release, pin.

Owns tables, claims and planned copies; the pool keeps the ledger. Knows no ranks, budgets or text,
and no clock: time enters only by `tick`. A refusal is a value whose text is the arithmetic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from octavo.core.batch import DEVICE, Move, Place
from octavo.core.claims import Claims
from octavo.core.events import Cleared, Sink, Stored
from octavo.core.keys import Key
from octavo.core.match import Match, Matcher, Wait
from octavo.core.pins import Pins
from octavo.core.policies import Policies
from octavo.core.pool import BlockPool
from octavo.core.publisher import Publisher, stored_event
from octavo.core.request import Request
from octavo.core.spec import KVSpec
from octavo.core.table import NOTHING, BlockTable

UNLIMITED_TOKENS = 1 << 40


class Refusal(NamedTuple):
    """Why a request gets no blocks now, or never if `needed` exceeds `total`."""

    needed: int
    available: int
    total: int
    unit: str = "blocks"

    def __str__(self) -> str:
        return f"needs {self.needed} {self.unit}, {self.available} of {self.total} are available"


class KVCache:
    def __init__(
        self,
        spec: KVSpec,
        total_blocks: int,
        *,
        step_tokens: int,
        policies: Policies | None = None,
        pin_share: float = 0.5,
        sink: Sink | None = None,
    ) -> None:
        policies = Policies() if policies is None else policies
        self.spec = spec
        self.kinds = tuple(group.kind for group in spec.groups)
        self.block_tokens = spec.block_tokens
        self.pool = BlockPool(total_blocks, groups=len(self.kinds), sink=sink)
        self.claims = Claims(share_keys=policies.share_in_flight)
        self.pins = Pins(self.pool, budget=int(total_blocks * pin_share), sink=sink)
        self.now = 0.0
        self.copies = 0
        self._cover = policies.allocator.cover
        self._reserves = policies.allocator.reserves
        self._step_tokens = step_tokens
        self._sink = sink
        self._moves: list[Move] = []
        self._publisher = Publisher(
            self.pool, self.claims, kinds=self.kinds, block_tokens=self.block_tokens, sink=sink
        )
        self._matcher = Matcher(
            self.pool,
            self.claims,
            kinds=self.kinds,
            block_tokens=self.block_tokens,
            copy_on_write=policies.copy_on_write,
        )
        self.capacity_tokens = self._largest_sequence()

    # -- what fits ----------------------------------------------------------------------------

    def fits(self, request: Request) -> Refusal | None:
        """Refusal if the prompt could not be held even by an empty pool."""
        needed = sum(self._peaks(request, request.n_prompt))
        total = self.pool.total
        return None if needed <= total else Refusal(needed, total, total)

    def cost(self, request: Request, match: Match, end: int) -> int:
        """Blocks that leave `available` if `match` is taken and grows to cover `end` tokens."""
        end = max(end, match.n_tokens)
        covered = self.spec.blocks(self._cover(request, end))
        peaks = self._peaks(request, end)
        return sum(
            min(covered - len(shared) + self.pool.idle(shared), peak)
            for shared, peak in zip(match.shared, peaks, strict=True)
        )

    def owed(self, request: Request) -> int:
        """Blocks a running request still misses for its known tokens, and for the block after.

        A sum of these stays safe while its requests grow: what they take leaves `available` and is
        still counted here, so admission is at worst too careful until the next step.
        """
        assert request.table is not None
        ahead = min(len(request.tokens) + self.block_tokens, request.max_total - 1)
        missing = self.spec.blocks(self._cover(request, ahead)) - len(request.table)
        return max(0, missing) * len(self.kinds)

    def _peaks(self, request: Request, end: int) -> list[int]:
        """Per group, the most blocks held at once on the way to `end` tokens."""
        covered = self._cover(request, end)
        step = self._peak_step(covered)
        return [self.spec.group_peak(kind, covered, step) for kind in self.kinds]

    def _peak_step(self, n_tokens: int) -> int:
        """Tokens held beside a window at the peak: a step's, but a reservation keeps them all."""
        return n_tokens if self._reserves else self._step_tokens

    def _largest_sequence(self) -> int:
        """Longest sequence, in tokens, that the whole pool can hold."""

        def too_large(n_tokens: int) -> bool:
            peak = self.spec.blocks_at_peak(n_tokens, self._peak_step(n_tokens))
            return peak > self.pool.total

        return bisect_left(range(UNLIMITED_TOKENS), True, key=too_large) - 1

    # -- matching -------------------------------------------------------------------------------

    def match(self, request: Request) -> Match | Wait:
        """The most that `request` can start from, or what it should wait for. Pure."""
        return self._matcher.match(request)

    def uncached_tokens(self, request: Request) -> int:
        """Prompt tokens to compute if it started now. From any thread: only an estimate there."""
        hit_tokens = self._matcher.hit_blocks(request) * self.block_tokens
        return request.n_prompt - request.restart(hit_tokens)

    def park(self, request: Request, wait: Wait) -> None:
        """Remember what `request` waits for, and what it could have had when it began to."""
        request.wait = wait.name
        if request.waited_from is None:
            request.waited_from = wait.n_tokens

    def parked(self, request: Request) -> bool:
        """Whether what `request` waits for is still being computed. O(1)."""
        return request.wait is not None and request.wait in self.claims

    # -- growing and shrinking ------------------------------------------------------------------

    def admit(self, request: Request, match: Match, n_tokens: int) -> Refusal | None:
        """Give `request` a table that starts from `match` and covers `n_tokens` more. Atomic.

        The caller has priced it with `cost` for at least as many tokens, or is ready for a refusal.
        """
        end = max(match.n_tokens, match.restart + n_tokens)
        needed = self.cost(request, match, end)
        if needed > self.pool.available:
            return Refusal(needed, self.pool.available, self.pool.total)
        full = match.n_tokens // self.block_tokens
        for shared in match.shared:  # references first, so that nothing matched is evicted
            self.pool.share(shared)
        groups = [array("i", shared) for shared in match.shared]
        n_copied = self._copy(match, groups)
        request.table = BlockTable(groups, stored=match.n_tokens, offered=full)
        request.computed = match.restart
        request.wait = None
        self.copies += n_copied
        request.receipt.copied_blocks += n_copied
        request.receipt.shared_blocks += len(match.shared[0])
        self.claims.take_keys(request.chain.keys[full:], request)
        if match.n_tokens < request.n_prompt:
            self.claims.take_fork(request)
        refusal = self.reserve(request, n_tokens)
        assert refusal is None, "admission was priced wrongly"
        return None

    def _copy(self, match: Match, groups: list[array[int]]) -> int:
        """Plan the copies, as of a partial last block: from here on each holder writes its own."""
        size, n_copied = self.block_tokens, 0
        for blocks, sources in zip(groups, match.copies, strict=bool(match.copies)):
            for source in sources:
                (own,) = self.pool.allocate(1)
                n_tokens = min(size, match.n_tokens - len(blocks) * size)
                self._moves.append(Move(Place(DEVICE, source), Place(DEVICE, own), n_tokens))
                blocks.append(own)
                n_copied += 1
        return n_copied

    def reserve(self, request: Request, n_tokens: int) -> Refusal | None:
        """Grow the table so that `n_tokens` more can be computed. Atomic."""
        table = request.table
        assert table is not None
        end = self._cover(request, max(table.stored, request.computed + n_tokens))
        more = self.spec.blocks(end) - len(table)
        if more <= 0:
            return None
        needed = more * len(self.kinds)
        if needed > self.pool.available:
            return Refusal(needed, self.pool.available, self.pool.total)
        for blocks in table.groups:
            blocks.extend(self.pool.allocate(more))
        return None

    def commit(self, request: Request) -> None:
        """After a step: publish what is full and confirmed, give back what is not needed."""
        table = request.table
        assert table is not None
        table.stored = max(table.stored, request.computed)
        if table.stored >= request.n_prompt:
            self.claims.drop(request, request)
        if table.stored // self.block_tokens > table.offered:
            self._publisher.publish(request, table)
        keep = self.spec.blocks(self._cover(request, table.stored))
        if len(table) > keep:
            for blocks in table.groups:
                self.pool.drop(blocks[keep:])
                del blocks[keep:]
        for kind, blocks in zip(self.kinds, table.groups, strict=True):
            if not kind.closed:
                self._leave_window(blocks, kind.first_live(request.computed))

    def release(self, request: Request) -> None:
        """Give up table and claims. Published blocks stay in the index until evicted."""
        self.claims.drop(request, request)
        table = request.table
        offered = 0 if table is None else table.offered
        for key in request.chain.keys[offered:]:
            self.claims.drop(key, request)
        if table is not None:
            for blocks in table.groups:
                self.pool.drop(blocks)
        request.table = None
        request.computed = 0

    def _leave_window(self, blocks: array[int], first_live: int) -> None:
        i = min(first_live // self.block_tokens, len(blocks)) - 1
        while i >= 0 and blocks[i] != NOTHING:
            self.pool.drop((blocks[i],))
            blocks[i] = NOTHING
            i -= 1

    # -- pins, clearing, time ---------------------------------------------------------------------

    def pin(self, name: str, request: Request, n_tokens: int, ttl_seconds: float) -> bool:
        """Keep the full published blocks below `n_tokens` of a running request.

        False: they are more than the whole pin budget, and not kept.
        """
        table = request.table
        assert table is not None
        n_blocks = min(n_tokens, table.stored) // self.block_tokens
        groups = [
            array("i", [b if self.pool.is_published(b) else NOTHING for b in blocks[:n_blocks]])
            for blocks in table.groups
        ]
        stored = n_blocks * self.block_tokens
        pinned = BlockTable(groups, stored=stored, offered=n_blocks)
        return self.pins.add(name, pinned, self.now + ttl_seconds)

    def unpin_oldest(self) -> bool:
        return self.pins.remove_oldest()

    def clear(self, root: Key | None = None) -> None:
        """Forget keys and claims, all or under `root`. Blocks in use stay in use."""
        self.pool.clear(root)
        self.claims.clear_keys(root)
        if self._sink is not None:
            self._sink(Cleared(root))

    def tick(self, now: float) -> None:
        self.now = self.pool.now = now
        if len(self.pins):
            self.pins.expire(now)

    def moves(self) -> list[Move]:
        """Planned copies, to run in order before all rows. They stay until `moved`."""
        return list(self._moves)

    def moved(self) -> None:
        """The planned copies have run, or those they were for are gone."""
        self._moves.clear()

    def freed_by(self, requests: Iterable[Request]) -> int:
        """Blocks that would become available if all of `requests` were released."""
        return self.pool.freed_by(
            blocks for request in requests if request.table for blocks in request.table.groups
        )

    def snapshot(self) -> Iterator[Stored]:
        """The index as Stored events, parents first."""
        for entry in self.pool.entries():
            yield stored_event([entry])

    # -- invariants -------------------------------------------------------------------------------

    def check(self, running: Iterable[Request]) -> None:
        """Assert the invariants of a cache at rest. For tests: walks the whole pool."""
        running = list(running)
        held = [0] * (self.pool.total + 1)
        for request in running:
            assert request.table is not None
            self._check_table(request, request.table)
        tables = [request.table for request in running if request.table] + list(self.pins.tables())
        for table in tables:
            for blocks in table.groups:
                for block in blocks:
                    held[block] += block != NOTHING
        self.pool.check(held)
        for group, kind in enumerate(self.kinds):
            if kind.closed:
                self.pool.check_closed(group)
        live = set(map(id, running))
        assert all(id(producer) in live for producer in self.claims.producers())

    def _check_table(self, request: Request, table: BlockTable) -> None:
        assert request.computed <= table.stored <= len(request.tokens)
        keep = self.spec.blocks(self._cover(request, table.stored))
        for kind, blocks in zip(self.kinds, table.groups, strict=True):
            assert len(blocks) == keep
            first = kind.first_live(request.computed) // self.block_tokens
            assert all(block != NOTHING for block in blocks[first:])
            for block in blocks[table.stored // self.block_tokens :]:
                assert not self.pool.is_published(block), "a partial block carries a key"
        partial = [blocks[table.stored // self.block_tokens :] for blocks in table.groups]
        assert all(self.pool.holders(block) == 1 for blocks in partial for block in blocks)
