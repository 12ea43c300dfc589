"""What a request can start from: indexed blocks, the table of the request it forks, or a wait.

Pure: looks at the pool's index, at claims and at tables, and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from octavo.core.claims import Claims, Name
from octavo.core.keys import Key
from octavo.core.pool import BlockPool
from octavo.core.request import Request
from octavo.core.spec import Kind
from octavo.core.table import NOTHING

MIN_SHARED_IN_FLIGHT_TOKENS = 64  # waiting for less than this costs more than computing it


class Match(NamedTuple):
    """What to start from. Made by `Matcher.match`, used up by `KVCache.admit` in the same step.

    n_tokens  tokens whose K and V exist; computing resumes at `restart`
    shared    per group, ids of the full blocks to share (NOTHING where no query will read)
    copies    per group, the blocks after these to copy: the partial last one if there is one
    """

    n_tokens: int
    restart: int
    shared: list[list[int]]
    copies: tuple[Sequence[int], ...] = ()


class Wait(NamedTuple):
    """Instead of a match: what is being computed and worth waiting for.

    n_tokens  what could be had already now
    """

    name: Name
    n_tokens: int


class Matcher:
    def __init__(
        self,
        pool: BlockPool,
        claims: Claims,
        *,
        kinds: tuple[Kind, ...],
        block_tokens: int,
        copy_on_write: bool = True,
    ) -> None:
        self._pool = pool
        self._claims = claims
        self._kinds = kinds
        self._block = block_tokens
        self._shares = copy_on_write
        self._closed = [g for g, kind in enumerate(kinds) if kind.closed]
        self._open = [g for g, kind in enumerate(kinds) if not kind.closed]

    def match(self, request: Request) -> Match | Wait:
        """The longest of index and source, or a wait where others are about to supply more."""
        hit_blocks = self.hit_blocks(request)
        computing = self._computing_next(request, hit_blocks)
        if computing is not None:
            return Wait(computing, hit_blocks * self._block)
        return self._from_source(request, hit_blocks) or self._from_index(request, hit_blocks)

    def _from_index(self, request: Request, hit_blocks: int) -> Match:
        n_tokens = hit_blocks * self._block
        restart = request.restart(n_tokens)
        keys = request.chain.keys
        shared = []
        for group, kind in enumerate(self._kinds):
            index = self._pool.index(group)
            first = min(hit_blocks, kind.first_live(restart) // self._block)
            shared.append([NOTHING] * first + [index[key] for key in keys[first:hit_blocks]])
        return Match(n_tokens, restart, shared)

    def hit_blocks(self, request: Request) -> int:
        """Full blocks that every group can supply. A closed group's index can be bisected."""
        keys = request.chain.keys
        top = len(keys)
        for group in self._closed:
            index = self._pool.index(group)
            top = bisect_left(keys, True, hi=top, key=lambda key: key not in index)
        if not self._open or not top:
            return top
        return self._longest_window_hit(request, top)

    def _longest_window_hit(self, request: Request, top: int) -> int:
        """Of the first `top` blocks, how many leave every window's live blocks in the index."""
        keys, block = request.chain.keys, self._block
        best = 0
        run_starts = [0] * len(self._open)  # first block of the unbroken run that ends here
        for i in range(top):
            restart = request.restart((i + 1) * block)
            usable = True
            for slot, group in enumerate(self._open):
                if keys[i] not in self._pool.index(group):
                    run_starts[slot] = i + 1
                first = self._kinds[group].first_live(restart) // block
                usable = usable and run_starts[slot] <= min(first, i + 1)
            if usable:
                best = i + 1
        return best

    def _computing_next(self, request: Request, hit_blocks: int) -> Key | None:
        """The last key that others are computing for it, if waiting is worth it."""
        keys = request.chain.keys
        if hit_blocks >= len(keys):
            return None
        producer = self._claims.producer(keys[hit_blocks])
        if producer is None or producer.priority > request.priority:
            return None
        claimed = bisect_left(keys, True, lo=hit_blocks, key=lambda key: key not in self._claims)
        if (claimed - hit_blocks) * self._block < MIN_SHARED_IN_FLIGHT_TOKENS:
            return None
        return keys[claimed - 1]

    def _from_source(self, request: Request, hit_blocks: int) -> Match | Wait | None:
        """A fork of a running source, a wait for its fork point, or None: go by the index."""
        source = request.source
        if source is None or source.table is None or request.fork_at <= hit_blocks * self._block:
            return None
        if source.table.stored < request.fork_at:
            return Wait(source, hit_blocks * self._block) if source.rank < request.rank else None
        restart = request.restart(request.fork_at)
        full, part = divmod(request.fork_at, self._block)
        shared, copies = [], []
        for kind, blocks in zip(self._kinds, source.table.groups, strict=True):
            first = kind.first_live(restart) // self._block
            if NOTHING in blocks[first : full + bool(part)]:
                return None  # a window of the source has moved on
            kept = full if self._shares else min(first, full)
            shared.append([NOTHING] * min(first, full) + list(blocks[first:kept]))
            copies.append(blocks[kept : full + bool(part)])
        return Match(request.fork_at, restart, shared, tuple(copies))
