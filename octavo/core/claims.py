"""Who is computing what right now: block keys and forkable requests, each with its producer.

A request whose next keys are claimed waits for them instead of computing them again. Knows no
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.core.keys import Key
from octavo.core.request import Request

Name = Key | Request  # a block key, or a request that others will fork


class Claims:
    """`share_keys` False leaves only forks: equal prompts are then computed side by side."""

    __slots__ = ("_producers", "_share_keys")

    def __init__(self, *, share_keys: bool = True) -> None:
        self._producers: dict[Name, Request] = {}
        self._share_keys = share_keys

    def __contains__(self, name: object) -> bool:
        return name in self._producers

    def __len__(self) -> int:
        return len(self._producers)

    def producer(self, name: Name) -> Request | None:
        return self._producers.get(name)

    def producers(self) -> Iterable[Request]:
        return self._producers.values()

    def take_keys(self, keys: Iterable[Key], producer: Request) -> None:
        """Claim the keys that nobody of a better rank has claimed: the better one comes first."""
        if not self._share_keys:
            return
        for key in keys:
            current = self._producers.setdefault(key, producer)
            if producer.rank < current.rank:
                self._producers[key] = producer

    def take_fork(self, producer: Request) -> None:
        """Announce that `producer` will reach its fork point."""
        self._producers[producer] = producer

    def drop(self, name: Name, producer: Request) -> None:
        """Give a claim up if it is `producer`'s."""
        if self._producers.get(name) is producer:
            del self._producers[name]

    def clear_keys(self, root: Key | None) -> None:
        """Forget the keys under `root`, or all; forks stay, since a fork needs no index."""
        self._producers = {
            name: producer
            for name, producer in self._producers.items()
            if name is producer or (root is not None and producer.chain.root != root)
        }
