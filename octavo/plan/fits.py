"""How many requests fit in a room: reserved at the maximum, at a power of two, paged, exact.

One rule for all four: the room over the mean bytes of one request, as that allocator counts them.
Knows lengths and bytes; not where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.plan.formats import KVFormat
from octavo.plan.geometry import Geometry

PAGED_BLOCKS = (1, 16, 256)
Bytes = Callable[[int], int]


def power_of_two(tokens: int) -> int:
    """The least power of two that is not below `tokens`."""
    return 1 << max(0, tokens - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """`requests`: that fit at once. `request_bytes`: the mean of one. `used`: the share of those
    bytes that holds tokens. `lost_slots`: the mean of slots a request holds and never fills."""

    name: str
    requests: int
    request_bytes: float
    used: float
    lost_slots: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One rank's room for K and V, and the geometry that fills it."""

    geometry: Geometry
    fmt: KVFormat
    room_bytes: int
    tp: int = 1

    def longest_context(self, limit: int = 1 << 40) -> int:
        """The most tokens of a single sequence, at most `limit`."""
        low, high = 0, limit
        while low < high:  # bytes never fall with the length
            middle = (low + high + 1) // 2
            fits = self.geometry.sequence_bytes(middle, self.fmt, self.tp) <= self.room_bytes
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def blocks(self, block_tokens: int) -> int:
        """Blocks of `block_tokens` in the room, each of all layers, windowed ones too."""
        block_bytes = self.geometry.early_token_bytes(self.fmt, self.tp) * block_tokens
        return self.room_bytes // block_bytes if block_bytes else 0

    def exact(self, lengths: Sequence[int]) -> Allocator:
        """By the byte: no slot is lost."""
        return self._allocator("exact", lengths, lambda n: n, self._logical)

    def paged(self, lengths: Sequence[int], block_tokens: int) -> Allocator:
        """In whole blocks."""

        def slots(tokens: int) -> int:
            return -(-tokens // block_tokens) * block_tokens

        def paged_bytes(tokens: int) -> int:
            return self.geometry.paged_bytes(
                tokens, self.fmt, block_tokens=block_tokens, tp=self.tp
            )

        return self._allocator(f"paged, blocks of {block_tokens}", lengths, slots, paged_bytes)

    def reserved(self, lengths: Sequence[int], max_tokens: int) -> Allocator:
        """The maximum for each, as an allocator that does not page must: the room of every layer is
        set aside whatever the sequence becomes."""
        return self._allocator(
            f"reserved, {max_tokens:,} each",
            lengths,
            lambda _: max_tokens,
            lambda _: self._logical(max_tokens),
        )

    def reserved_pow2(self, lengths: Sequence[int], max_tokens: int) -> Allocator:
        """The next power of two of each length, at most the maximum."""

        def slots(tokens: int) -> int:
            return min(max_tokens, power_of_two(tokens))

        return self._allocator(
            "reserved, powers of two", lengths, slots, lambda n: self._logical(slots(n))
        )

    def _logical(self, tokens: int) -> int:
        return self.geometry.sequence_bytes(tokens, self.fmt, self.tp)

    def _allocator(
        self, name: str, lengths: Sequence[int], slots: Callable[[int], int], taken: Bytes
    ) -> Allocator:
        total = sum(map(taken, lengths))
        held = sum(map(self._logical, lengths))
        return Allocator(
            name=name,
            # In whole numbers: a quotient of floats would lose a request at the edge.
            requests=self.room_bytes * len(lengths) // total if total else 0,
            request_bytes=total / len(lengths),
            used=held / total if total else 0.0,
            lost_slots=sum(slots(n) - n for n in lengths) / len(lengths),
        )
