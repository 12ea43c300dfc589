"""Guessing with a draft model: its cache, what it gives up, and when it stops because of cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from octavo.core import Full, Group, KVSpec, Request, Sliding
from octavo.core.batch import Batch, Runner, StepResult
from octavo.core.draft_gain import BASELINE_STEPS, LONGEST_PAUSE_TOKENS, TRIAL_ROUNDS
from octavo.core.draft_model import DraftModel
from octavo.core.spec import Kind
from tests.core.desk import Desk
from tests.core.ledger import draft_model
from tests.core.traffic import Traffic


def spec(kinds: Sequence[Kind] = (Full(),), block_tokens: int = 16) -> KVSpec:
    groups = tuple(Group(kind, (i,), 1, 1, "float32") for i, kind in enumerate(kinds))
    return KVSpec(groups, block_tokens)


def assert_given_back(drafter: DraftModel) -> None:
    drafter.check()
    assert drafter.cache.pool.available == drafter.cache.pool.total
    assert not drafter._twins
    assert not drafter._gain._records


@pytest.mark.parametrize("kinds", [(Full(),), (Full(), Sliding(20)), (Sliding(9),)])
@pytest.mark.parametrize("right", [1.0, 0.6, 0.0])
def test_answers_are_the_same(kinds: tuple[Kind, ...], right: float) -> None:
    """The draft's ledger proves every read: nothing of a guess taken back is ever read."""
    drafter = draft_model(spec(kinds), 200, right=right)
    desk = Desk(200, drafter=drafter, kinds=kinds)
    requests = [desk.add(f"{i}", range(i, 40 + i), max_tokens=80) for i in range(3)]
    requests.append(desk.add("uncached", range(30), max_tokens=80, cached=False))
    while desk.scheduler.busy:
        desk.step()
        drafter.check()
    desk.assert_right(*requests)
    desk.assert_empty()
    assert_given_back(drafter)
    totals = desk.scheduler.totals
    assert totals.drafted_tokens > 100
    assert sum(totals.drafted_by_place) == totals.drafted_tokens
    assert sum(totals.accepted_by_place) == totals.accepted_tokens
    assert sum(each.receipt.accepted for each in requests) == totals.accepted_tokens
    assert sum(each.receipt.drafted for each in requests) == totals.drafted_tokens
    if right == 1.0:
        assert totals.accepted_tokens == totals.drafted_tokens
        assert totals.steps < 40
    elif right == 0.0:
        assert totals.accepted_tokens == 0


@pytest.mark.parametrize("blocks", [1, 6, 40])
def test_random_traffic_leaves_nothing_behind(blocks: int) -> None:
    runs = [Traffic(seed, draft_blocks=blocks, beams=0.05).run() for seed in range(40)]
    assert sum(run.scheduler.totals.preemptions for run in runs) > 5
    if blocks > 1:
        assert sum(run.scheduler.totals.accepted_tokens for run in runs) > 1000
    for run in runs:
        assert run.drafter is not None
        assert_given_back(run.drafter)


def test_a_long_prompt_is_caught_up_with_over_several_steps() -> None:
    drafter = draft_model(spec(), 100, step_tokens=100)
    desk = Desk(100, drafter=drafter)
    request = desk.add("long", range(450), max_tokens=60)
    seen = 0
    while desk.scheduler.busy:
        desk.step()
        computed = drafter._runner.computed_tokens  # type: ignore[attr-defined]
        assert computed - seen <= 100 + 4
        seen = computed
    desk.assert_right(request)
    first = next(batch.step for batch in desk.batches if any(row.drafts for row in batch.rows))
    assert first == 1 + BASELINE_STEPS + 1 + 4  # the prompt; measuring; four steps of chunks


def test_a_prefix_is_taken_from_the_drafts_own_cache_until_it_is_cleared() -> None:
    drafter = draft_model(spec(), 100)
    desk = Desk(100, drafter=drafter)

    def cost_of(name: str) -> int:
        before: int = drafter._runner.computed_tokens  # type: ignore[attr-defined]
        desk.add(name, range(320), max_tokens=20)
        desk.run()
        return int(drafter._runner.computed_tokens) - before  # type: ignore[attr-defined]

    cold = cost_of("cold")
    assert cold > 320
    assert cost_of("warm") < 40
    desk.scheduler.clear_cache()
    assert cost_of("cleared") > 320
    assert_given_back(drafter)


def test_a_pool_that_is_full_gives_no_drafts_and_nothing_waits() -> None:
    drafter = draft_model(spec(), 4)
    desk = Desk(100, drafter=drafter)
    large = desk.add("large", range(100), max_tokens=60)
    small = desk.add("small", range(20), max_tokens=30)
    while desk.scheduler.busy:
        desk.step()
        drafter.check()
    desk.assert_right(large, small)
    assert large.receipt.drafted == 0
    assert small.receipt.accepted > 0
    assert_given_back(drafter)


def test_no_guess_beyond_what_the_draft_model_can_see() -> None:
    drafter = draft_model(spec(), 100, n_positions=50)
    desk = Desk(100, drafter=drafter)
    request = desk.add("a", range(30), max_tokens=60)
    desk.run()
    desk.assert_right(request)
    assert 0 < request.receipt.drafted <= 20


def test_none_beside_a_full_house() -> None:
    drafter = draft_model(spec(), 100, most_running=2)
    desk = Desk(100, drafter=drafter)
    requests = [desk.add(f"{i}", range(i, 20 + i), max_tokens=30) for i in range(3)]
    desk.run()
    desk.assert_right(*requests)
    assert desk.scheduler.totals.drafted_tokens == 0


def test_a_stop_token_ends_the_guesses() -> None:
    drafter = draft_model(spec(), 100)
    desk = Desk(100, drafter=drafter)
    free = desk.add("free", range(30), max_tokens=40)
    desk.run()
    stop = free.tokens[30 + BASELINE_STEPS + 3]
    request = desk.request("stops", range(30), max_tokens=40)
    request.limits = type(request.limits)(40, frozenset([stop]))
    desk.scheduler.add(request, desk.now)
    desk.run()
    assert request.tokens[-1] == stop
    assert request.receipt.drafted == request.receipt.accepted


class Failing:
    """Raises, or returns an error for every row."""

    def __init__(self, runner: Runner, *, raises: bool) -> None:
        self._runner = runner
        self._raises = raises

    def run(self, batch: Batch) -> StepResult:
        if self._raises:
            raise RuntimeError("out of memory")
        rows = self._runner.run(batch).rows
        return StepResult([each._replace(tokens=(), error="broken") for each in rows])


@pytest.mark.parametrize("raises", [True, False])
def test_a_draft_model_that_fails_ends_no_request(raises: bool) -> None:
    drafter = draft_model(spec(), 100)
    drafter._runner = Failing(drafter._runner, raises=raises)
    desk = Desk(100, drafter=drafter)
    requests = [desk.add(f"{i}", range(i, 20 + i), max_tokens=40) for i in range(2)]
    desk.run()
    desk.assert_right(*requests)
    assert desk.scheduler.totals.drafted_tokens == 0
    assert_given_back(drafter)


@dataclass
class Timed:
    """A runner whose steps take `seconds` on a clock that only they move."""

    runner: Runner
    clock: Clock
    seconds: float
    per_token: float = 0.0

    def run(self, batch: Batch) -> StepResult:
        tokens = sum(row.end - row.start for row in batch.rows)
        self.clock.now += self.seconds + self.per_token * tokens
        return self.runner.run(batch)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(*, right: float, draft_seconds: float, per_token: float = 0.0) -> Desk:
    """A target's step takes 1 s and `per_token` for each token more."""
    clock = Clock()
    drafter = draft_model(spec(), 400, right=right, clock=clock)
    drafter._runner = Timed(drafter._runner, clock, draft_seconds)
    desk = Desk(400, drafter=drafter)
    desk.runner = Timed(desk.runner, clock, 1 - per_token, per_token)  # type: ignore[assignment]
    return desk


def drafted(desk: Desk, n_tokens: int = 1000) -> Request:
    request = desk.add("a", range(30), max_tokens=n_tokens)
    for _ in range(2 * n_tokens):
        if not desk.scheduler.busy:
            break
        desk.step()
    return request


def test_right_and_cheap_guesses_go_on() -> None:
    request = drafted(timed(right=1.0, draft_seconds=0.1))
    assert request.receipt.accepted == request.receipt.drafted > 750


@pytest.mark.parametrize(
    ("right", "draft_seconds", "per_token"),
    [(0.0, 0.1, 0.0), (0.3, 0.2, 0.0), (1.0, 1.2, 0.0), (1.0, 0.1, 1.0)],
    ids=["wrong", "rarely right", "slow draft", "rows that cost as much as steps"],
)
def test_guesses_that_do_not_pay_stop_and_are_tried_again(
    right: float, draft_seconds: float, per_token: float
) -> None:
    desk = timed(right=right, draft_seconds=draft_seconds, per_token=per_token)
    drafted(desk)
    rounds = [
        row.start for batch in desk.batches for row in batch.rows if row.drafts
    ]  # where guesses began
    assert TRIAL_ROUNDS <= len(rounds) <= 16 * TRIAL_ROUNDS
    pauses = [after - before for before, after in pairwise(rounds)]
    assert max(pauses) >= LONGEST_PAUSE_TOKENS // 2  # retried, and less and less often
    assert rounds[-1] > 300


def test_what_pays_for_one_must_pay_for_all_of_the_step() -> None:
    """One request that may be guessed for beside seven that may not: they would pay for it."""
    desk = timed(right=1.0, draft_seconds=0.4)  # a guessing step takes 2.6 s, for 4 tokens more
    others = [desk.request(f"{i}", range(i, 30 + i), max_tokens=400) for i in range(7)]
    for other in others:
        other.speculates = False
        desk.scheduler.add(other, desk.now)
    request = drafted(desk, 300)
    assert 0 < request.receipt.drafted < 150
    alone = drafted(timed(right=1.0, draft_seconds=0.4), 300)
    assert alone.receipt.drafted > 200
