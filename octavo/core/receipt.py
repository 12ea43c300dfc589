"""A request's receipt: what it took from the cache, added to it and held. Owns how that counts."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR_SECONDS = 3600.0


@dataclass(slots=True)
class Receipt:
    """In tokens unless the name says otherwise; times on the loop's clock, in seconds.

    read + written_5m + written_1h + written_implicit + unkept = prompt: each position is counted
    once and until the first token, also across preemptions; `recomputed` counts repeated work.
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
    tokens: int = 0
    stored: int = 0
    blocks: int = 0
    peak_blocks: int = 0
    slots: int = 0
    block_seconds: float = 0.0
    queued_at: float = 0.0
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    _billed: int = field(default=0, repr=False)  # prompt positions accounted so far
    _reached: int = field(default=0, repr=False)  # positions ever computed
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

    def take_block(self, end: int, n_tokens: int, *, kept: bool, ttl_seconds: float | None) -> None:
        """A prompt block that ends at `end` is full; `kept`: this request's copy entered the index.

        `ttl_seconds`: how long a pin keeps it, None for as long as nobody needs the room.
        """
        if self.first_token_at is not None or end <= self._billed:
            return
        self._billed = end
        if not kept:
            return
        if ttl_seconds is None:
            self.written_implicit += n_tokens
        elif ttl_seconds < HOUR_SECONDS:
            self.written_5m += n_tokens
        else:
            self.written_1h += n_tokens

    def take_work(self, start: int, end: int) -> None:
        """Positions [start, end) were computed."""
        self.recomputed += max(0, min(end, self._reached) - start)
        self._reached = max(self._reached, end)

    def take_first_token(self, n_prompt: int, now: float) -> None:
        """Closes the prompt's account: what was neither read nor written is unkept."""
        self.first_token_at = now
        self.unkept = n_prompt - self.read - self.written

    def hold(self, blocks: int, now: float) -> None:
        """From `now` on the request holds `blocks`; a shared block counts fully for each holder."""
        self.block_seconds += self._held * (now - self._held_since)
        self._held = blocks
        self._held_since = now
        self.peak_blocks = max(self.peak_blocks, blocks)
