"""Drafts by a second, smaller model: it runs ahead of each request over K and V of its own.

Owns the draft model's cache and, per request, a twin: a request of that cache whose tokens are the
confirmed ones and after them what was guessed last. Twins run as any rows do, with the sampling and
the random numbers of their requests, so draft and target take the same token wherever the same
number leads both to it. Knows no tensors, and no clock but the one it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from octavo.core.batch import Batch, Row, Runner
from octavo.core.cache import KVCache
from octavo.core.draft_gain import DraftGain
from octavo.core.match import Match
from octavo.core.request import Request
from octavo.core.sampling import SamplingParams

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Twin:
    """`itself` runs on the draft model. Of its tokens the first `confirmed` are `of`'s; in the
    round that is going on it may have `room` guesses after them."""

    of: Request
    itself: Request
    confirmed: int = 0
    room: int = 0

    @property
    def done(self) -> bool:
        """Whether no more guesses are wanted: after a token that ends the request none count."""
        tokens = self.itself.tokens
        n_guesses = len(tokens) - self.confirmed
        return n_guesses >= self.room or (n_guesses > 0 and tokens[-1] in self.of.limits.stop_ids)


class DraftModel:
    """A `Drafter`: at most `most_tokens` a request, none while more than `most_running` run.

    `runner` and `cache` are the draft model's, which has `n_positions`; the cache has the block
    size of the target's, and nobody waits in it (`share_in_flight` off). A step computes at most
    `step_tokens` of what twins have not seen yet: a long prompt is caught up with over several
    steps. A request whose twin gets no room has no drafts, and its twin holds nothing.
    """

    def __init__(
        self,
        runner: Runner,
        cache: KVCache,
        *,
        clock: Callable[[], float],
        most_tokens: int,
        most_running: int,
        step_tokens: int,
        n_positions: int,
    ) -> None:
        self.cache = cache
        self._runner = runner
        self._clock = clock
        self._most = most_tokens
        self._most_running = most_running
        self._step_tokens = step_tokens
        self._n_positions = n_positions
        self._gain = DraftGain()
        self._twins: dict[Request, _Twin] = {}
        self._steps = 0
        self._failed = False
        self._guess_seconds: float | None = None
        self._guessed_at = 0.0

    # -- a drafter --------------------------------------------------------------------------------

    def propose(self, requests: Sequence[Request], n_running: int) -> list[tuple[int, ...]]:
        began = self._clock()
        steady = True
        guesses: dict[Request, tuple[int, ...]] = {}
        if n_running <= self._most_running and not self._failed:
            chosen = self._gain.choose(requests, n_running)
            try:
                guesses, steady = self._guess(chosen)
            except Exception:  # what only guesses must not end what it guesses for
                log.exception("the draft model failed: no more guesses")
                self._give_up()
        self._guessed_at = self._clock()
        self._guess_seconds = self._guessed_at - began if steady else None
        return [guesses.get(request, ()) for request in requests]

    def observe(self, rows: Sequence[Row], n_accepted: Sequence[int]) -> None:
        self._gain.observe(
            rows,
            n_accepted,
            guess_seconds=self._guess_seconds,
            step_seconds=self._clock() - self._guessed_at,
        )

    def leave(self, request: Request) -> None:
        self._gain.leave(request)
        self._drop(request)

    def clear(self) -> None:
        self.cache.clear()

    # -- a round of guesses -----------------------------------------------------------------------

    def _guess(self, requests: Sequence[Request]) -> tuple[dict[Request, tuple[int, ...]], bool]:
        """Guesses by request, and whether nothing but guesses was computed."""
        started = self._start(requests)
        longest = 1 + self._most
        steady = all(row.samples and row.end - row.start <= longest for _, row in started)
        going = started
        while going:
            self._run(going)
            going = [
                (twin, self._row(twin, row.seat, 1))
                for twin, row in going
                if row.samples and not twin.done and self.cache.reserve(twin.itself, 1) is None
            ]
        guesses = {
            twin.of: tuple(twin.itself.tokens[twin.confirmed :])
            for twin, row in started
            if row.samples
        }
        return guesses, steady

    def _start(self, requests: Sequence[Request]) -> list[tuple[_Twin, Row]]:
        """Rows that bring twins up to their requests, as far as room and budget go."""
        started: list[tuple[_Twin, Row]] = []
        left = self._step_tokens
        for request in requests:
            known = len(request.tokens)
            room = min(self._most, request.max_total - known - 1, self._n_positions - known)
            if room < 1 or left < 1:
                continue
            twin = self._meet(request)
            twin.room = room
            if not self._enter(twin):
                continue
            n = min(twin.itself.behind, left)
            if self.cache.reserve(twin.itself, n) is not None:
                self._refuse(request)
                continue
            left -= n
            started.append((twin, self._row(twin, len(started), n)))
        return started

    def _run(self, going: list[tuple[_Twin, Row]]) -> None:
        """One forward of the draft model; each row that samples adds a guess to its twin."""
        self._steps += 1
        batch = Batch(self._steps, [row for _, row in going], self.cache.moves(), [])
        results = self._runner.run(batch).rows
        for (twin, row), result in zip(going, results, strict=True):
            itself, table = twin.itself, twin.itself.table
            assert table is not None
            itself.computed = row.end
            table.stored = max(table.stored, row.end)
            itself.tokens += result.tokens
            if result.error is not None:
                self._gain.mute(twin.of)
                self._drop(twin.of)
                twin.room = 0

    def _row(self, twin: _Twin, seat: int, n: int) -> Row:
        itself = twin.itself
        assert itself.table is not None
        start, end = itself.computed, itself.computed + n
        samples = end == len(itself.tokens)
        logits_from = end - 1 if samples else end
        return Row(itself, seat, start, end, itself.table.stored, logits_from, (), samples)

    # -- twins ------------------------------------------------------------------------------------

    def _meet(self, request: Request) -> _Twin:
        """The request's twin, told what was confirmed; guesses that were wrong are taken back."""
        twin = self._twins.get(request)
        if twin is None:
            twin = self._twins[request] = _Twin(request, _twin_of(request))
        itself, known = twin.itself, request.tokens
        same = twin.confirmed
        most = min(len(itself.tokens), len(known))
        while same < most and itself.tokens[same] == known[same]:
            same += 1
        itself.tokens[same:] = known[same:]
        twin.confirmed = len(known)
        if itself.table is not None:
            itself.table.stored = min(itself.table.stored, same)
            itself.computed = min(itself.computed, itself.restart(same))
            self.cache.commit(itself)  # all that it has stored is confirmed
        return twin

    def _enter(self, twin: _Twin) -> bool:
        """Whether the twin has a table, if need be from now on. It enters only if it fits whole."""
        itself = twin.itself
        if itself.table is not None:
            return True
        match = self.cache.match(itself)
        assert isinstance(match, Match), "a twin waits for nobody"
        if not self._fits(itself, match):
            self._drop_idle()
        if not self._fits(itself, match) or self.cache.admit(itself, match, 1) is not None:
            self._refuse(twin.of)
            return False
        return True

    def _fits(self, itself: Request, match: Match) -> bool:
        cost = self.cache.cost(itself, match, len(itself.tokens) + self._most)
        return cost <= self.cache.pool.available

    def _drop_idle(self) -> None:
        """Twins of requests that do not run give way."""
        for request in [each for each in self._twins if each.table is None]:
            self._drop(request)

    def _refuse(self, request: Request) -> None:
        self._gain.silence(request)
        self._drop(request)

    def _drop(self, request: Request) -> None:
        twin = self._twins.pop(request, None)
        if twin is not None:
            self.cache.release(twin.itself)

    def _give_up(self) -> None:
        self._failed = True
        for request in list(self._twins):
            self._drop(request)

    def check(self) -> None:
        """Assert the invariants of the draft model's cache at rest. For tests."""
        self.cache.check([each.itself for each in self._twins.values() if each.itself.table])


def _twin_of(request: Request) -> Request:
    """Same tokens, sampling and random numbers. Its keys are the request's own: blocks are equally
    long, and what a key names in one cache has nothing to do with the other."""
    sampling = request.sampling
    if isinstance(sampling, SamplingParams):
        sampling = replace(sampling, logprobs=None)  # scores of a guess interest nobody
    return Request(
        request.id,
        request.tokens,
        limits=request.limits,
        chain=request.chain,
        sampling=sampling,
        choice=request.choice,
        owner=request.owner,
    )
