"""One request's beam search: which continuations live on, which are answers, and when it is over.

Owns scores, selection and the group's account of shared blocks. The beams are core requests: a
parent's first heir goes on in place, each further one is a fork. Knows no queues and no tensors.

The rules are those of `transformers`' beam search, so that the answers are equal. With `width` live
beams, all continuations are ranked by accumulated log-probability, ties by the better beam, then
by the lower token id:

- A stop token among the first `width` makes a finished hypothesis; further down it makes nothing.
- The first `width` continuations that do not stop live on.
- At the length limit the first `width` all finish.
- A hypothesis scores log-probability / generated tokens ** length_penalty, its stop token included;
  the best `width` are kept, the earlier of equal ones first.

What differs: a vocabulary with fewer than `width` continuations leaves fewer beams, where
`transformers` fills up with impossible ones.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from octavo.core.request import Finish, Request
from octavo.core.table import NOTHING

MAX_WIDTH = 64

Candidate = tuple[int, float]  # token id and its log-probability
EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRules:
    """What a caller chooses. `n` <= `width` best hypotheses are the answer.

    early_stopping  True: over once `width` are finished. False: over once the best live beam, at
                    its present length, scores no better than the worst of them. "never": as False,
                    but with the best score that it could have at its longest.
    """

    width: int
    n: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False


class Hypothesis(NamedTuple):
    """A finished answer. `logprob` is accumulated over `tokens`, which are generated ones only."""

    tokens: tuple[int, ...]
    finish: Finish
    logprob: float
    score: float


class _Beam(NamedTuple):
    request: Request
    logprob: float


class _Heir(NamedTuple):
    """A continuation that lives on."""

    parent: Request
    token: int
    logprob: float


class BeamGroup:
    """The beams of one request. `leader` prefills the prompt and carries the group's receipt.

    `over`: nothing of it runs or waits any more.
    """

    def __init__(self, leader: Request, rules: BeamRules) -> None:
        assert 1 <= rules.n <= rules.width <= MAX_WIDTH
        leader.beams = self
        leader.speculates = False
        self.leader = leader
        self.rules = rules
        self.n_generated = 0  # tokens of each live beam
        self.error: str | None = None
        self.over = False
        self._live = [_Beam(leader, 0.0)]
        self._finished: list[Hypothesis] = []  # best first
        self._born = 0

    @property
    def n_candidates(self) -> int:
        """Likeliest tokens that each beam reports.

        Enough for `width` that do not stop, and for every stop token among the first `width`.
        """
        return self.rules.width + len(self.leader.limits.stop_ids)

    @property
    def members(self) -> list[Request]:
        """The live beams, best first."""
        return [beam.request for beam in self._live]

    @property
    def ready(self) -> bool:
        """Whether every live beam has reported, so that the next ones can be chosen."""
        return all(beam.request.reported is not None for beam in self._live)

    @property
    def answer(self) -> tuple[Hypothesis, ...]:
        """The best hypotheses so far, best first, at most n."""
        return tuple(self._finished[: self.rules.n])

    # -- choosing ---------------------------------------------------------------------------------

    def advance(self) -> tuple[list[Request], list[Request]]:
        """Choose the next beams from what all have reported: (those that end, those born).

        When the search is `over` afterwards, all that lived end.
        """
        assert self.ready
        before = self.members
        heirs = self._select()
        if self._decided(heirs):
            return self.dissolve(), []
        self._live = self._continue(heirs)
        live, known = set(self.members), set(before)
        for request in live:
            request.reported = None
            if request.source not in live:  # an ended beam has nothing left to copy: let it go
                request.source = None
        ended = [request for request in before if request not in live]
        return ended, [request for request in self.members if request not in known]

    def dissolve(self) -> list[Request]:
        """End the search from outside. Returns the beams that lived."""
        members = self.members
        self.over = True
        self._live = []
        return members

    def _ranked(self) -> Iterator[tuple[float, int, int]]:
        """All continuations, best first, as (-logprob, the beam's place, token). Lazy."""

        def of(place: int, beam: _Beam) -> Iterator[tuple[float, int, int]]:
            reported: Sequence[Candidate] = beam.request.reported
            return ((-(beam.logprob + logprob), place, token) for token, logprob in reported)

        return heapq.merge(*(of(place, beam) for place, beam in enumerate(self._live)))

    def _select(self) -> list[_Heir]:
        """Those that live on, best first; those that finish are taken in."""
        width = self.rules.width
        stop_ids = self.leader.limits.stop_ids
        self.n_generated += 1
        last = self.n_generated >= self.leader.max_total - self.leader.n_prompt
        heirs: list[_Heir] = []
        for place, (cost, at, token) in enumerate(self._ranked()):
            if place >= width and (last or len(heirs) == width):
                break
            parent = self._live[at].request
            stops = token in stop_ids
            if not stops and not last:
                if len(heirs) < width:
                    heirs.append(_Heir(parent, token, -cost))
            elif place < width:
                finish = Finish.STOP if stops else Finish.LENGTH
                self._finish(parent, token, -cost, finish=finish)
        return heirs

    def _finish(self, parent: Request, token: int, logprob: float, *, finish: Finish) -> None:
        score = logprob / self.n_generated**self.rules.length_penalty
        width = self.rules.width
        if len(self._finished) == width and score <= self._finished[-1].score:
            return
        tokens = (*parent.tokens[parent.n_prompt :], token)
        hypothesis = Hypothesis(tokens, finish, logprob, score)
        insort(self._finished, hypothesis, key=lambda each: -each.score)
        del self._finished[width:]

    def _decided(self, heirs: Sequence[_Heir]) -> bool:
        """Whether nothing that lives on can or may change the answer."""
        if not heirs:
            return True
        rules = self.rules
        if len(self._finished) < rules.width:
            return False
        if rules.early_stopping is True:
            return True
        length = self.n_generated
        if rules.early_stopping == "never" and rules.length_penalty > 0:
            length = self.leader.max_total - self.leader.n_prompt
        best: float = heirs[0].logprob / length**rules.length_penalty
        return best <= self._finished[-1].score

    # -- growing ----------------------------------------------------------------------------------

    def _continue(self, heirs: Sequence[_Heir]) -> list[_Beam]:
        """Forks first: each starts from its parent as it is before the parent's own next token."""
        first: dict[int, _Heir] = {}
        for heir in heirs:
            first.setdefault(id(heir.parent), heir)
        live = []
        for heir in heirs:
            in_place = first[id(heir.parent)] is heir
            request = heir.parent if in_place else self._fork(heir.parent, heir.token)
            live.append(_Beam(request, heir.logprob))
        for heir in first.values():
            heir.parent.tokens.append(heir.token)
        return live

    def _fork(self, parent: Request, token: int) -> Request:
        self._born += 1
        child = Request(
            f"{self.leader.id}.{self._born}",
            [*parent.tokens, token],
            limits=parent.limits,
            chain=parent.chain.copy(),
            sampling=parent.sampling,
            priority=parent.priority,
            owner=parent.owner,
            choice=parent.choice,
            source=parent,
            speculates=False,
        )
        child.beams = self
        child.n_prompt = parent.n_prompt
        child.max_total = parent.max_total
        child.fork_at = len(parent.tokens)
        child.rank = (*self.leader.rank[:2], self._born)
        return child

    # -- the account ------------------------------------------------------------------------------

    def count_blocks(self) -> None:
        """Note what the beams hold together at the end of a step, if they never held more."""
        tables = [each.table for each in self.members if each.table is not None]
        unshared = sum(table.held() for table in tables)
        blocks: set[int] = set()
        for table in tables:
            blocks.update(*table.groups)
        blocks.discard(NOTHING)
        receipt = self.leader.receipt
        if (unshared, len(blocks)) > (receipt.beam_unshared_blocks, receipt.beam_blocks):
            receipt.beam_unshared_blocks, receipt.beam_blocks = unshared, len(blocks)
