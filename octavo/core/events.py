"""What happened in the KV cache, as values for a sink: KV events, the live page, a router.

A sink is called at once, not at the next step. Without a sink no event is built.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from octavo.core.keys import Key


class Stored(NamedTuple):
    """Blocks entered the index, in chain order under `parent`. `tokens`: all their token ids."""

    keys: tuple[Key, ...]
    parent: Key
    tokens: array[int]
    group: int
    tier: int
    owner: str


class Removed(NamedTuple):
    """A block left the index: its last copy is gone. `idle_seconds`: how long it lay unused."""

    key: Key
    group: int
    tier: int
    reason: str  # "evicted" | "cleared"
    idle_seconds: float


class Cleared(NamedTuple):
    """The index was emptied, or what hangs under one root."""

    root: Key | None


class Pinned(NamedTuple):
    name: str
    blocks: int
    deadline: float


class Unpinned(NamedTuple):
    name: str
    reason: str  # "expired" | "replaced" | "budget" | "yielded"


Event = Stored | Removed | Cleared | Pinned | Unpinned
Sink = Callable[[Event], None]
