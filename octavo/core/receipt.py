"""A request's receipt: what it took from the cache, added to it and held. Owns how that counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.core.request import Request

HOUR_SECONDS = 3600.0


@dataclass(slots=True)
class Receipt:
    """In tokens unless the name says otherwise; times on the loop's clock, in seconds.

    read + written_5m + written_1h + written_implicit + unkept = prompt: each position is counted
    once and until the first token, also across preemptions; `recomputed` counts repeated work. For
    a request that ended before its first token the sum is what of the prompt had been read or
    computed by then.

    written_1h, written_5m   computed and kept because it was asked for, for an hour or longer, or
                             for less
    written_implicit         otherwise computed and kept, for as long as nobody needs the room
    unkept                   computed and not kept: a partial last block, or a duplicate
    shared_in_flight         read from a request that was computing it meanwhile
    shared_blocks, copied_blocks   taken over shared, or copied at a fork, in all admissions
    drafted, accepted        guessed tokens that were run, and those of them that were right
    tokens, stored, blocks, slots  held at the end
    block_seconds            blocks held over time; a shared block counts fully for each holder

    The receipt of a beam search is its leader's, whose prompt account is the group's; recomputed,
    preemptions, shared_blocks, copied_blocks and block_seconds are sums over all its beams.

    beam_unshared_blocks     the most blocks that the tables of all its beams would take at the end
                             of a step if each had blocks of its own: their number times the blocks
                             of one sequence; 0 without beams
    beam_blocks              the blocks that they took in that step: a shared one counts once
    """

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0
    written_implicit: int = 0
    unkept: int = 0
    recomputed: int = 0
    shared_in_flight: int = 0
    shared_blocks: int = 0
    copied_blocks: int = 0
    preemptions: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    stored: int = 0
    blocks: int = 0
    peak_blocks: int = 0
    slots: int = 0
    beam_blocks: int = 0
    beam_unshared_blocks: int = 0
    block_seconds: float = 0.0
    queued_at: float = 0.0
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    _billed: int = field(default=0, repr=False)  # prompt positions accounted so far
    _reached: int = field(default=0, repr=False)  # positions ever computed
    _kept: list[tuple[int, int]] = field(default_factory=list, repr=False)  # (end, tokens)
    _pinned_5m: int = field(default=0, repr=False)  # end of the longest pin of that kind
    _pinned_1h: int = field(default=0, repr=False)
    _held: int = field(default=0, repr=False)
    _held_since: float = field(default=0.0, repr=False)

    @property
    def written(self) -> int:
        return self.written_5m + self.written_1h + self.written_implicit

    @property
    def slots_lost(self) -> int:
        """Slots of the last table beyond the known tokens."""
        return max(0, self.slots - self.tokens)

    @property
    def slots_unwritten(self) -> int:
        """Slots of the last table without K and V. The last token is never fed back: one more."""
        return max(0, self.slots - self.stored)

    def take_read(self, end: int, *, waited_from: int | None) -> int:
        """The cache supplies the prompt up to `end`. Returns how much of that was not counted yet.

        `waited_from`: what could be hit when the request began to wait for another's blocks.
        """
        fresh = end - self._billed
        if self.first_token_at is not None or fresh <= 0:
            return 0
        self.read += fresh
        self._billed = end
        if waited_from is not None:
            self.shared_in_flight += min(fresh, max(0, end - waited_from))
        return fresh

    def take_block(self, end: int, n_tokens: int, *, kept: bool) -> None:
        """A prompt block that ends at `end` is full; `kept`: this copy of it entered the index."""
        if self.first_token_at is not None or end <= self._billed:
            return
        self._billed = end
        if kept:
            self._kept.append((end, n_tokens))
            self._enter(end, n_tokens)

    def take_pin(self, end: int, ttl_seconds: float) -> None:
        """What this request writes below `end` is pinned, or asked to be kept so long.

        The longest time names a block.
        """
        if self.first_token_at is not None:
            return
        if ttl_seconds < HOUR_SECONDS:
            self._pinned_5m = max(self._pinned_5m, end)
        else:
            self._pinned_1h = max(self._pinned_1h, end)
        self.written_5m = self.written_1h = self.written_implicit = 0
        for block_end, n_tokens in self._kept:
            self._enter(block_end, n_tokens)

    def _enter(self, end: int, n_tokens: int) -> None:
        if end <= self._pinned_1h:
            self.written_1h += n_tokens
        elif end <= self._pinned_5m:
            self.written_5m += n_tokens
        else:
            self.written_implicit += n_tokens

    def take_work(self, start: int, end: int) -> None:
        """Positions [start, end) were computed."""
        self.recomputed += max(0, min(end, self._reached) - start)
        self._reached = max(self._reached, end)

    def take_first_token(self, n_prompt: int, now: float) -> None:
        """Closes the prompt's account: what was neither read nor written is unkept."""
        self._settle(n_prompt)
        self.first_token_at = now

    def close(self, request: Request, now: float, *, block_tokens: int) -> None:
        """The request has ended; it still holds its table, if it ever had one."""
        if self.first_token_at is None:
            self._settle(min(request.n_prompt, max(self._reached, self._billed)))
        self.finished_at = now
        self.tokens = len(request.tokens)
        if request.table is not None:
            self.stored = request.table.stored
            self.blocks = len(request.table)
            self.slots = self.blocks * block_tokens
        self.hold(0, now)

    def _settle(self, n_counted: int) -> None:
        self.unkept = n_counted - self.read - self.written
        self._kept.clear()

    def absorb(self, other: Receipt) -> None:
        """Add what another beam of the same group did and held. It has been closed."""
        self.recomputed += other.recomputed
        self.preemptions += other.preemptions
        self.shared_blocks += other.shared_blocks
        self.copied_blocks += other.copied_blocks
        self.block_seconds += other.block_seconds

    def hold(self, blocks: int, now: float) -> None:
        """From `now` on the request holds `blocks`; a shared block counts fully for each holder."""
        self.block_seconds += self._held * (now - self._held_since)
        self._held = blocks
        self._held_since = now
        self.peak_blocks = max(self.peak_blocks, blocks)
