"""Each request beside the one before it: what the cache should have held and why it did not.

Owns the rules of a prompt cache as a log shows it. Knows no prices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from octavo.pricing.api_prices import undated_name
from octavo.usage.message import Compaction, Message

SHORT_SECONDS, LONG_SECONDS = 300.0, 3600.0
# The log has the time of an answer; its request came earlier by an unknown while. Within this
# share below the time to live it may have run out or not.
UNSURE = 0.8
TOGETHER_SECONDS = 1.0  # closer requests ran side by side: one cannot read what the other writes
LEAST_MISSED = 128  # fewer are the ends of blocks, or a mark that was moved
# Shortest prompts that are cached at all, by the beginning of the model's name; longest first.
MINIMUM_TOKENS = {
    "claude-haiku-4-5": 4096,
    "claude-opus-4-5": 4096,
    "claude-opus-4-6": 4096,
    "claude-opus-4-7": 4096,
    "claude-3-5-haiku": 2048,
    "claude-3-haiku": 2048,
    "claude-sonnet-4": 1024,
    "claude-sonnet-5": 1024,
    "claude-opus-4": 1024,
    "claude-opus-5": 512,
    "claude-fable-5": 512,
    "claude-mythos-5": 512,
}


class Reason(StrEnum):
    """Why tokens were written, or why they were not read."""

    NEW = "new tokens"
    FIRST = "first request"
    EXPIRED = "time to live ran out"
    COMPACTED = "compaction"
    SWITCHED = "model switched"
    CHANGED = "prefix changed"
    TOO_SHORT = "below the minimum"
    UNKNOWN = "unknown"


class Turn(NamedTuple):
    """`gap_seconds`: since the answer before it in its chain, None for the first.

    `missed`: tokens that the request before had in the cache and this one paid for again.
    `ttl_seconds`: for how long what it could read had been written.
    `held`: tokens of the request before that were in the cache.
    """

    message: Message
    gap_seconds: float | None
    ttl_seconds: float
    held: int
    missed: int
    reason: Reason

    @property
    def reusable(self) -> int:
        """Tokens that a cache which forgets nothing would have supplied."""
        return self.message.main.read + (self.missed if self.reason is Reason.EXPIRED else 0)


def turns(
    messages: Iterable[Message],
    compactions: Sequence[Compaction],
    *,
    ttl_seconds: float | None = None,
) -> Iterator[Turn]:
    """Every request with a prompt, chain after chain, each in the order of time.

    `ttl_seconds`: for how long everything was kept; None: as the writes say.
    """
    ended: dict[tuple[str, str], list[float]] = {}
    for one in sorted(compactions):
        ended.setdefault((one.session, one.agent), []).append(one.time)
    asked = (one for one in messages if one.main.prompt)
    ordered = sorted(asked, key=lambda one: (one.chain, one.time, one.id))
    for chain, members in groupby(ordered, key=lambda one: one.chain):
        yield from _chain(members, ended.get(chain, []), ttl_seconds)


def _chain(
    members: Iterable[Message], compacted: Sequence[float], fixed: float | None
) -> Iterator[Turn]:
    before: Message | None = None
    ttl = SHORT_SECONDS
    for message in members:
        yield _turn(message, before, compacted, ttl if fixed is None else fixed)
        ttl = _ttl_after(message, ttl)
        before = message


def _ttl_after(message: Message, ttl: float) -> float:
    """The shorter of what was written; a request that only reads keeps what there was."""
    if message.main.write_5m:
        return SHORT_SECONDS
    return LONG_SECONDS if message.main.write_1h else ttl


def _turn(message: Message, before: Message | None, compacted: Sequence[float], ttl: float) -> Turn:
    main = message.main
    if before is None:
        reason = Reason.TOO_SHORT if _too_short(message) else Reason.FIRST
        return Turn(message, None, ttl, 0, 0, reason)
    gap = message.time - before.time
    held = before.held
    missed = min(max(0, held - main.read), main.write + main.input)
    if missed < LEAST_MISSED:
        missed = 0
    if _too_short(message):
        reason = Reason.TOO_SHORT
    elif not missed:
        reason = Reason.NEW
    elif bisect_right(compacted, message.time) > bisect_right(compacted, before.time):
        reason = Reason.COMPACTED
    elif message.model != before.model:
        reason = Reason.SWITCHED
    elif gap > ttl:
        reason = Reason.EXPIRED
    elif gap > ttl * UNSURE or gap < TOGETHER_SECONDS:
        reason = Reason.UNKNOWN
    else:
        reason = Reason.CHANGED
    return Turn(message, gap, ttl, held, missed, reason)


def _too_short(message: Message) -> bool:
    """Neither read nor written, and shorter than what its model caches."""
    main = message.main
    least = minimum_tokens(message.model)
    return not main.read and not main.write and least is not None and main.prompt < least


def minimum_tokens(model: str, table: Mapping[str, int] = MINIMUM_TOKENS) -> int | None:
    """None for a model whose minimum is not known."""
    name = undated_name(model)
    return next((tokens for start, tokens in table.items() if name.startswith(start)), None)
