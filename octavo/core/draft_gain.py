"""Whether guessing with a draft model pays: measured costs of steps against measured acceptance.

Owns the running means and the pauses. Knows no clock: seconds come from whoever has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.core.batch import Row
from octavo.core.request import Request

BASELINE_STEPS = 4  # steps without guesses to measure before the first guess
REFRESH_STEPS = 64  # guessing steps after which one without refreshes the comparison
TRIAL_ROUNDS = 4  # guesses of a request before it is judged by them
LEAST_WEIGHT = 1 / 8  # of a new value in a running mean
FIRST_PAUSE_TOKENS = 16
LONGEST_PAUSE_TOKENS = 256


@dataclass(slots=True)
class Mean:
    """The mean of the first values, then one that forgets: a new value weighs `LEAST_WEIGHT`."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) * max(LEAST_WEIGHT, 1 / self.count)


@dataclass(slots=True)
class _Costs:
    """Seconds of a step of so many requests that takes one token each: `plain`, or `guessing`,
    which is to guess and to run the guesses. `since_plain`: guessing steps since the last one."""

    plain: Mean = field(default_factory=Mean)
    guessing: Mean = field(default_factory=Mean)
    since_plain: int = 0

    @property
    def wants_plain(self) -> bool:
        return self.plain.count < BASELINE_STEPS or self.since_plain >= REFRESH_STEPS

    @property
    def ratio(self) -> float | None:
        """Cost of a guessing step in plain ones; None: not measured enough."""
        if self.guessing.count < TRIAL_ROUNDS or self.plain.value <= 0:
            return None
        return self.guessing.value / self.plain.value


@dataclass(slots=True)
class _Record:
    """What one request's guesses have been worth: tokens accepted per step that had some.

    quiet_until  no guess before the request has this many tokens
    pause        tokens to wait when guessing does not pay, doubled while it does not
    """

    accepted: Mean = field(default_factory=Mean)
    quiet_until: int = 0
    pause: int = FIRST_PAUSE_TOKENS

    @property
    def judged(self) -> bool:
        return self.accepted.count >= TRIAL_ROUNDS


class DraftGain:
    """A step of n requests yields n tokens, and each right guess one more.

    Guessing costs `ratio` plain steps instead of one. So it pays for one request if 1 + accepted
    exceeds the ratio, and for all of a step, those without guesses included, if the tokens they
    yield together exceed n * ratio.
    """

    def __init__(self) -> None:
        self._costs: dict[int, _Costs] = {}  # by requests in a step
        self._records: dict[Request, _Record] = {}
        self._typical = Mean()

    def choose(self, requests: Sequence[Request], n_running: int) -> list[Request]:
        """Those of `requests` that should be guessed for in the next step."""
        costs = self._costs.setdefault(n_running, _Costs())
        if costs.wants_plain:
            return []
        awake = [each for each in requests if len(each.tokens) >= self._record(each).quiet_until]
        ratio = costs.ratio
        if ratio is None:
            return awake
        kept = []
        for request in awake:
            record = self._records[request]
            if record.judged and 1 + record.accepted.value <= ratio:
                self.silence(request)
            else:
                kept.append(request)
        records = [self._records[each] for each in kept]
        expected = n_running + sum(each.accepted.value for each in records)
        if all(each.judged for each in records) and expected <= n_running * ratio:
            for request in kept:
                self.silence(request)
            return []
        for record in records:
            if record.judged:
                record.pause = FIRST_PAUSE_TOKENS
        return kept

    def silence(self, request: Request) -> None:
        """No guesses for a while; then it is tried anew."""
        record = self._record(request)
        record.quiet_until = len(request.tokens) + record.pause
        record.pause = min(LONGEST_PAUSE_TOKENS, 2 * record.pause)
        record.accepted = Mean()

    def mute(self, request: Request) -> None:
        """No guesses any more."""
        self._record(request).quiet_until = request.max_total

    def observe(
        self,
        rows: Sequence[Row],
        n_accepted: Sequence[int],
        *,
        guess_seconds: float | None,
        step_seconds: float,
    ) -> None:
        """A step with `rows` took `step_seconds`, and to guess for it `guess_seconds`; None if
        that included more than guessing. Steps that compute prompts say nothing about cost."""
        drafted = False
        for row, n_right in zip(rows, n_accepted, strict=True):
            if row.drafts:
                drafted = True
                self._typical.add(n_right)
                if row.request in self._records:  # it may have ended with this step
                    self._records[row.request].accepted.add(n_right)
        costs = self._costs.get(len(rows))
        if costs is None or any(row.end - row.start > 1 + len(row.drafts) for row in rows):
            return
        if not drafted:
            costs.plain.add(step_seconds)
            costs.since_plain = 0
            return
        costs.since_plain += 1
        if guess_seconds is not None:
            costs.guessing.add(guess_seconds + step_seconds)

    def leave(self, request: Request) -> None:
        self._records.pop(request, None)

    def _record(self, request: Request) -> _Record:
        """A new request is judged by what is typical, once that is known."""
        record = self._records.get(request)
        if record is None:
            record = self._records[request] = _Record()
            if self._typical.count >= TRIAL_ROUNDS:
                record.accepted = Mean(self._typical.value, TRIAL_ROUNDS)
        return record
