"""What the runner needs of an engine. Each `*_engine` module has a `load` that returns one."""

from __future__ import annotations

from typing import Protocol

from benchmarks.peers.timing import Timing


class Engine(Protocol):
    def version(self) -> str:
        """The release that is measured."""

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        """Decode every prompt greedily to exactly `out_tokens`, all of them at once."""
