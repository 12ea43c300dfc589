"""Where `cache_control` stands in a prompt, and what Anthropic asks of it. Knows no messages."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.errors import RequestError
from octavo.engine.breakpoints import MAX_BREAKPOINTS
from octavo.server.anthropic.blocks import CacheControl


@dataclass(frozen=True, slots=True)
class Place:
    """A block of the prompt: an item of a message's list `key`, or of the tools (message None)."""

    message: int | None
    key: str
    item: int


class KeepMarks:
    """The places to keep the prompt up to, with their ttl in seconds, in the prompt's order."""

    def __init__(self) -> None:
        self.marks: list[tuple[Place, int]] = []

    def add(self, control: CacheControl | None, place: Place, where: str) -> None:
        """Keep up to `place` if `control` says so. Raises RequestError naming `where`."""
        if control is None:
            return
        if self.marks and self.marks[-1][1] < control.ttl_seconds:
            raise RequestError(
                "a ttl of 1h must not come after one of 5m: in the order tools, system, messages "
                "the longer ones come first",
                param=f"{where}.ttl",
            )
        if len(self.marks) == MAX_BREAKPOINTS:
            raise RequestError(
                f"at most {MAX_BREAKPOINTS} blocks may have cache_control, and this is one more",
                param=where,
            )
        self.marks.append((place, control.ttl_seconds))

    def add_for_all(self, control: CacheControl | None, place: Place) -> None:
        """`cache_control` of the whole request: it means `place`, the last block of all."""
        if control is None or not self.marks or self.marks[-1][0] != place:
            self.add(control, place, "cache_control")
        elif self.marks[-1][1] != control.ttl_seconds:
            raise RequestError(
                "the last block has a cache_control with another ttl; give one of the two",
                param="cache_control.ttl",
            )
