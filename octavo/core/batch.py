"""The values that cross from plan to compute and back. NamedTuples: built per row per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from octavo.core.request import Finish, Request

DEVICE = 0  # the tier whose blocks attention reads


class Place(NamedTuple):
    """One block's storage: a tier and the block's id there."""

    tier: int
    slot: int


class Move(NamedTuple):
    """Copy the first `n_tokens` of a block, all layers of its group, before any row runs."""

    src: Place
    dst: Place
    n_tokens: int


class Row(NamedTuple):
    """One request's share of a step: its tokens [start, end), drafts last.

    Positions below `write_from` are computed but not stored. Logits are wanted from `logits_from`
    on (`end` means none). `samples`: the row ends at the last known token and yields a new one.
    `seat` is the request's stable index in [0, max_num_seqs) while it runs.
    """

    request: Request
    seat: int
    start: int
    end: int
    write_from: int
    logits_from: int
    drafts: tuple[int, ...]
    samples: bool


class Batch(NamedTuple):
    """One step's plan. `vacated` seats were given up since the last one, and may be taken again by
    its rows: deal with them first. Then `moves` in order, then all rows.
    """

    step: int
    rows: list[Row]
    moves: list[Move]
    vacated: list[int]


class RowResult(NamedTuple):
    """What a row yielded. `scores` is opaque to the core; `error` ends this request alone.

    A beam's row yields no tokens: its `scores` are (token, log-probability), the likeliest first
    and the lower token of equal ones, `BeamGroup.n_candidates` of them where there are so many.
    """

    tokens: Sequence[int] = ()
    drafts: tuple[int, ...] = ()
    scores: Any = None
    error: str | None = None


class StepResult(NamedTuple):
    """Results in the order of the batch's rows."""

    rows: Sequence[RowResult]


class Delta(NamedTuple):
    """What a step changed for one request: the tokens out, and how it ended if it did.

    A beam search has one, its leader's at the end, whose `scores` are the hypotheses, best first.
    """

    request: Request
    tokens: Sequence[int]
    scores: Any
    finish: Finish | None


class Drafter(Protocol):
    """Guesses tokens for the next step to verify. Its guesses change speed, never answers.

    Between two steps: `propose`, then the step, then `observe` unless the step failed.
    """

    def propose(self, requests: Sequence[Request], n_running: int) -> Sequence[tuple[int, ...]]:
        """Guesses for what comes after each request's known tokens, in the order of `requests`.

        These run and have one token to compute; none of them has guesses yet. They may be none.
        """

    def observe(self, rows: Sequence[Row], n_accepted: Sequence[int]) -> None:
        """A step has run `rows`; of each one's drafts the first `n_accepted` were right."""

    def leave(self, request: Request) -> None:
        """The request has ended."""

    def clear(self) -> None:
        """Forget what was kept of requests that have ended."""


class Runner(Protocol):
    """Carries out a batch. Nothing else: capacity is start-up work."""

    def run(self, batch: Batch) -> StepResult: ...
