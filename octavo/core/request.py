"""A request as the core sees it: token ids, limits and progress. Knows no text.

Runners read a request and never write it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.core.keys import Chain, Key, TokenChain
from octavo.core.receipt import Receipt
from octavo.core.table import BlockTable

if TYPE_CHECKING:
    from octavo.core.beams import BeamGroup

UNBOUNDED = 1 << 60


class Finish(enum.StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    PRUNED = "pruned"  # a beam that others beat: never the end of an answer


@dataclass(frozen=True, slots=True)
class Limits:
    """When generation ends. `stop_ids` includes the end-of-sequence ids unless ignored."""

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PinWish:
    """Keep the first `n_tokens` of this request's blocks for `ttl_seconds` under `name`."""

    name: str
    n_tokens: int
    ttl_seconds: float


class Request:
    """One sequence being generated. `rank` orders all work, lower first: (priority, arrival,
    birth), where birth tells the beams of one group apart and is 0 for every other request.

    `source` and `fork_at`: start as a fork of another request once it has stored `fork_at` tokens
    (n > 1, beams). `scored` is the first position whose prompt log-probability is still owed.
    `beams` is the group of a beam; `reported` are the candidates that it has computed for its next
    token: while they are set, it has nothing to do but wait for its siblings.

    How far it is, in tokens; always computed <= stored <= len(tokens):

        tokens    |---------- prompt ----------|-- generated --|   known and confirmed
        stored    |=======================|                        K and V are in the pool
        computed  |=====================|                          where the next row starts
        offered   |---|---|---|---|---|                            whole blocks shown to the index

    `stored` runs ahead of `computed` only after a hit of the whole prompt, whose last token is run
    once more for its logits and not stored again (a row's `write_from` is `stored`).
    """

    __slots__ = (
        "beams",
        "chain",
        "choice",
        "computed",
        "drafts",
        "finish",
        "fork_at",
        "id",
        "limits",
        "max_total",
        "n_prompt",
        "owner",
        "pins",
        "priority",
        "rank",
        "receipt",
        "reported",
        "sampling",
        "scored",
        "seat",
        "source",
        "speculates",
        "table",
        "tokens",
        "wait",
        "waited_from",
    )

    def __init__(
        self,
        request_id: str,
        tokens: Sequence[int],
        *,
        limits: Limits,
        chain: Chain | None = None,
        sampling: Any = None,
        priority: int = 0,
        owner: str = "",
        choice: int = 0,
        source: Request | None = None,
        scored: int = UNBOUNDED,
        pins: tuple[PinWish, ...] = (),
        speculates: bool = True,
    ) -> None:
        self.id = request_id
        self.tokens = list(tokens)
        self.n_prompt = len(self.tokens)
        self.limits = limits
        self.max_total = self.n_prompt + limits.max_tokens
        self.chain: Chain = TokenChain(None, 1) if chain is None else chain
        self.chain.extend(self.tokens)
        self.sampling = sampling
        self.priority = priority
        self.rank: tuple[int, int, int] = (priority, 0, 0)
        self.owner = owner
        self.choice = choice
        self.source = source
        self.fork_at = self.n_prompt
        self.scored = scored
        self.pins = pins
        self.speculates = speculates  # whether a drafter may guess for it
        self.computed = 0
        self.table: BlockTable | None = None
        self.seat = -1
        self.wait: Key | Request | None = None
        self.waited_from: int | None = None  # what could be hit when it began to wait
        self.drafts: tuple[int, ...] = ()
        self.beams: BeamGroup | None = None
        self.reported: Any = None
        self.receipt = Receipt()
        self.finish: Finish | None = None

    @property
    def behind(self) -> int:
        """Tokens and drafts still to compute."""
        return len(self.tokens) - self.computed + len(self.drafts)

    def restart(self, stored: int) -> int:
        """Where computing resumes with `stored` tokens in the pool: the last token always runs."""
        return min(stored, len(self.tokens) - 1, self.scored)
