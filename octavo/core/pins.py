"""Pins: block tables with a name and a deadline that hold references like a request.

Owns their common budget. Knows the pool only. Time comes as an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from octavo.core.events import Pinned, Sink, Unpinned
from octavo.core.pool import BlockPool
from octavo.core.table import BlockTable


class Pin(NamedTuple):
    table: BlockTable
    deadline: float


class Pins:
    """At most `budget` block references are pinned; the oldest pin yields to a newer one."""

    def __init__(self, pool: BlockPool, *, budget: int, sink: Sink | None = None) -> None:
        self._pool = pool
        self._budget = budget
        self._sink = sink
        self._pins: OrderedDict[str, Pin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, name: object) -> bool:
        return name in self._pins

    def tables(self) -> Iterator[BlockTable]:
        return (pin.table for pin in self._pins.values())

    @property
    def blocks(self) -> int:
        """Block references held by all pins; a block in two pins counts twice."""
        return sum(table.held() for table in self.tables())

    def add(self, name: str, table: BlockTable, deadline: float) -> bool:
        """Hold `table`'s blocks until `deadline`; replaces a pin of the same name.

        False: it is larger than the whole budget and not held.
        """
        for group in table.groups:
            self._pool.share(group)
        self.remove(name, "replaced")
        self._pins[name] = Pin(table, deadline)
        if self._sink is not None:
            self._sink(Pinned(name, table.held(), deadline))
        while self.blocks > self._budget:
            self.remove(next(iter(self._pins)), "budget")
        return name in self._pins

    def remove(self, name: str, reason: str) -> bool:
        pin = self._pins.pop(name, None)
        if pin is None:
            return False
        for group in pin.table.groups:
            self._pool.drop(group)
        if self._sink is not None:
            self._sink(Unpinned(name, reason))
        return True

    def remove_oldest(self) -> bool:
        """Let the oldest pin yield to a request that could not run otherwise."""
        return bool(self._pins) and self.remove(next(iter(self._pins)), "yielded")

    def expire(self, now: float) -> None:
        for name in [name for name, pin in self._pins.items() if pin.deadline <= now]:
            self.remove(name, "expired")
