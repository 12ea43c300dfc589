"""A block table: which blocks hold one sequence's K and V. Held by a request, a beam or a pin."""

from __future__ import annotations

from array import array

NOTHING = 0  # the block id that nobody may read: a window has left it


class BlockTable:
    """Per group, block ids in logical order.

    `stored` tokens have K and V in the pool; `offered` full blocks have been offered to the index.
    """

    __slots__ = ("groups", "offered", "stored")

    def __init__(self, groups: list[array[int]], *, stored: int = 0, offered: int = 0) -> None:
        self.groups = groups
        self.stored = stored
        self.offered = offered

    def __len__(self) -> int:
        """Logical blocks covered; equal in every group."""
        return len(self.groups[0])

    def held(self) -> int:
        """Block ids held, over all groups."""
        return sum(len(group) - group.count(NOTHING) for group in self.groups)
