"""Beam search in the scheduler: the plain search's answers, every read proven, nothing left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from octavo.core.batch import Delta, RowResult, StepResult
from octavo.core.beams import BeamGroup, BeamRules, Hypothesis
from octavo.core.cache import KVCache
from octavo.core.keys import TokenChain
from octavo.core.planner import Planner
from octavo.core.policies import MAX_LENGTH, POWER_OF_TWO, Policies
from octavo.core.request import Finish, Limits, Request
from octavo.core.spec import Full, Sliding
from tests.core.desk import ROOT, Desk
from tests.core.plain_beams import plain_search
from tests.core.traffic import Traffic

VOCAB = 80
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


class BeamDesk(Desk):
    """A desk that keeps the answers of searches and compares them with the plain ones."""

    def __init__(self, blocks: int, **options: Any) -> None:
        super().__init__(blocks, **{"vocab": VOCAB, "block_tokens": 4, **options})
        self.answers: dict[Request, tuple[Hypothesis, ...]] = {}
        self.idle_steps = 0

    def search(
        self,
        width: int,
        prompt: Iterable[int] = PROMPT,
        *,
        max_tokens: int = 9,
        stop: Iterable[int] = (),
        cached: bool = True,
        priority: int = 0,
        **rules: Any,
    ) -> Request:
        leader = Request(
            f"search {self.scheduler.totals.sequences}",
            list(prompt),
            limits=Limits(max_tokens, frozenset(stop)),
            chain=TokenChain(ROOT if cached else None, self.block_tokens),
            priority=priority,
        )
        BeamGroup(leader, BeamRules(width=width, **{"n": width, **rules}))
        refusal = self.scheduler.add(leader, self.now)
        assert refusal is None, str(refusal)
        return leader

    def step(self) -> list[Delta]:
        deltas = super().step()
        for delta in deltas:
            if delta.request.beams is not None and delta.finish is not Finish.ERROR:
                assert delta.request not in self.answers, "a search ended twice"
                self.answers[delta.request] = delta.scores
        waits = not self.batches[-1].rows and self.scheduler.busy
        self.idle_steps = self.idle_steps + 1 if waits else 0
        assert self.idle_steps < 2, "livelock"
        return deltas

    def plain(self, leader: Request) -> list[Hypothesis]:
        assert leader.beams is not None
        return plain_search(
            leader.chain.root,
            leader.tokens[: leader.n_prompt],
            rules=leader.beams.rules,
            room=leader.max_total - leader.n_prompt,
            stop=leader.limits.stop_ids,
            vocab=self.runner.vocab,
        )

    def assert_found(self, *leaders: Request) -> None:
        for leader in leaders:
            assert list(self.answers[leader]) == self.plain(leader)

    def finish(self, *leaders: Request) -> None:
        self.run(most_steps=20_000)
        self.assert_found(*leaders)
        self.assert_empty()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_the_answers_are_the_plain_searchs(width: int, early_stopping: Any) -> None:
    desk = BeamDesk(2000)
    leaders = [
        desk.search(
            width,
            PROMPT[:length],
            stop=stop,
            length_penalty=penalty,
            early_stopping=early_stopping,
        )
        for length, penalty in ((3, 1.0), (8, 0.0), (11, 2.0), (10, -1.0))
        for stop in ([], [7], range(0, VOCAB, 5))
    ]
    desk.finish(*leaders)


@pytest.mark.parametrize("width", [2, 4, 8, 64])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 6},
        {"blocks": 9},
        {"blocks": 24},
        {"blocks": 500, "seqs": 1},
        {"blocks": 500, "seqs": 3},
        {"blocks": 12, "seqs": 5, "budget": 5},
        {"blocks": 12, "block_tokens": 2},
        {"blocks": 40, "block_tokens": 1, "seqs": 7},
        {"blocks": 16, "kinds": (Full(), Sliding(5))},
        {"blocks": 14, "kinds": (Sliding(6),), "seqs": 6},
        {"blocks": 14, "policies": Policies(allocator=MAX_LENGTH)},
        {"blocks": 14, "policies": Policies(allocator=POWER_OF_TWO)},
        {"blocks": 14, "policies": Policies(continuous=False), "seqs": 3},
        {"blocks": 14, "policies": Policies(share_in_flight=False)},
        {"blocks": 14, "policies": Policies(splits=False), "budget": 40, "seqs": 20},
    ],
    ids=str,
)
def test_any_pool_and_any_number_of_seats_finds_the_same(
    width: int, cached: bool, options: dict[str, Any]
) -> None:
    desk = BeamDesk(**options)
    leader = desk.search(width, max_tokens=6 if width == 64 else 9, stop=[7, 8], cached=cached)
    desk.finish(leader)


def test_a_group_wider_than_the_pool_is_preempted_and_right() -> None:
    desk = BeamDesk(8)
    leader = desk.search(8, cached=False)
    desk.finish(leader)
    assert leader.receipt.preemptions > 0
    assert leader.receipt.recomputed > 0


def test_beams_run_beside_their_group_and_not_behind_later_requests() -> None:
    desk = BeamDesk(500, seqs=4)
    search = desk.search(4, max_tokens=12)
    later = [desk.add(f"later {i}", PROMPT[: 4 + i], max_tokens=4) for i in range(6)]
    desk.run()
    assert search.receipt.finished_at is not None
    # Three took the seats that the leader left; the seats they leave are for its beams.
    admitted = [each.receipt.admitted_at or 0 for each in later]
    assert admitted[:3] == [0, 0, 0]
    assert min(admitted[3:]) >= search.receipt.finished_at
    desk.assert_found(search)
    desk.assert_right(*later)
    desk.assert_empty()


def test_a_wide_group_goes_on_beside_one_that_never_leaves() -> None:
    """Waves take the seats and blocks of their own siblings: they wait for nobody else."""
    desk = BeamDesk(60, seqs=3)
    long = desk.add("long", PROMPT, max_tokens=200)
    search = desk.search(8, max_tokens=6)
    for _ in range(60):
        desk.step()
    assert long.finish is None
    assert search in desk.answers
    desk.finish(search)
    desk.assert_right(long)


def test_two_groups_that_fill_the_pool_both_end() -> None:
    for blocks in range(7, 30):
        desk = BeamDesk(blocks, seqs=6)
        leaders = [desk.search(width, max_tokens=7, stop=[3]) for width in (5, 8, 3)]
        other = desk.add("other", PROMPT, max_tokens=9)
        desk.finish(*leaders)
        desk.assert_right(other)


def test_a_group_whose_beams_fit_is_one_row_each_and_computes_nothing_twice() -> None:
    desk = BeamDesk(200)
    leader = desk.search(4, max_tokens=6)
    desk.finish(leader)
    assert desk.runner.computed_tokens == len(PROMPT) + 4 * 5
    assert leader.receipt.recomputed == 0
    assert [len(batch.rows) for batch in desk.batches] == [1, 4, 4, 4, 4, 4]


def test_the_receipt_tells_what_sharing_saves() -> None:
    desk = BeamDesk(200)
    prompt = list(range(4 * 8))
    leader = desk.search(8, prompt, max_tokens=4)
    desk.finish(leader)
    receipt = leader.receipt
    # At the last step each of 8 beams has 8 full prompt blocks and one of its own.
    assert receipt.beam_unshared_blocks == 8 * 9
    assert receipt.beam_blocks == 8 + 8
    assert receipt.read + receipt.written + receipt.unkept == len(prompt)


def test_aborting_in_the_middle_leaves_nothing() -> None:
    for at in range(1, 9):
        desk = BeamDesk(14, seqs=5)
        doomed, kept = desk.search(8), desk.search(3)
        for _ in range(at):
            desk.step()
        desk.abort(doomed)
        desk.abort(doomed)
        assert doomed.finish is Finish.ABORT
        desk.finish(kept)
        assert doomed not in desk.answers


def test_one_beams_error_ends_its_whole_group_and_no_other() -> None:
    desk = BeamDesk(100)
    doomed, kept = desk.search(4), desk.search(3)
    desk.step()
    desk.step()
    batch = desk.scheduler.schedule(desk.now)
    rows = list(desk.runner.run(batch).rows)
    at = [row.request.beams is doomed.beams for row in batch.rows].index(True)
    rows[at + 1] = RowResult(error="broken")
    deltas = desk.scheduler.update(batch, StepResult(rows), desk.now)
    desk.scheduler.check()
    assert [(d.request, d.scores, d.finish) for d in deltas] == [(doomed, "broken", Finish.ERROR)]
    desk.finish(kept)


def test_a_failed_step_ends_a_group_once_with_all_that_waits_of_it() -> None:
    desk = BeamDesk(100, seqs=2)
    doomed = desk.search(6)
    desk.step()
    desk.scheduler.schedule(desk.now)
    deltas = desk.scheduler.fail("broken", desk.now)
    assert [(delta.request, delta.finish) for delta in deltas] == [(doomed, Finish.ERROR)]
    assert not desk.scheduler.busy
    desk.assert_empty()


def test_a_step_that_is_lost_is_planned_again() -> None:
    desk = BeamDesk(100)
    leader = desk.search(4)
    for at in range(6):
        desk.scheduler.schedule(desk.now)
        if at % 2:
            desk.runner.run(desk.scheduler.schedule(desk.now))
        desk.step()
    desk.finish(leader)


def test_fewer_continuations_than_the_width_leave_fewer_beams() -> None:
    desk = BeamDesk(100, vocab=3)
    leaders = [desk.search(8, max_tokens=n, stop=stop) for n in (1, 2, 5) for stop in ([], [1])]
    desk.finish(*leaders)
    assert len(desk.answers[leaders[0]]) == 3


@pytest.mark.parametrize("seed", range(40))
def test_random_mixes_with_ordinary_requests(seed: int) -> None:
    rnd = random.Random(seed)
    policies = Policies(
        allocator=rnd.choice([Policies().allocator] * 3 + [MAX_LENGTH, POWER_OF_TWO]),
        continuous=rnd.random() < 0.8,
        share_in_flight=rnd.random() < 0.8,
    )
    traffic = Traffic(seed, n_requests=40, policies=policies, beams=0.4)
    assert traffic.run().searches > 0


# -- bugs put in on purpose ------------------------------------------------------------------------


def _no_tail_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "moves", lambda self: [])


def _parent_grows_before_its_forks(patch: pytest.MonkeyPatch) -> None:
    fork = BeamGroup._fork

    def late(self: BeamGroup, parent: Request, token: int) -> Request:
        child = fork(self, parent, token)
        child.fork_at += 1
        return child

    patch.setattr(BeamGroup, "_fork", late)


def _idle_beams_keep_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Planner, "_idle_gives_way", lambda self, step, sibling: False)


def _beaten_beams_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    advance = BeamGroup.advance
    patch.setattr(BeamGroup, "advance", lambda self: ([], advance(self)[1]))


def _too_few_candidates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BeamGroup, "n_candidates", property(lambda self: self.rules.width // 2))


BUGS = [
    _no_tail_copy,
    _parent_grows_before_its_forks,
    _idle_beams_keep_everything,
    _beaten_beams_are_forgotten,
    _too_few_candidates,
]


def _in_two_pools() -> None:
    for blocks in (200, 12):
        desk = BeamDesk(blocks, seqs=6)
        desk.finish(desk.search(4, stop=[7]), desk.search(8, cached=False, stop=[9]))


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_put_in_on_purpose_is_seen(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_two_pools()
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        _in_two_pools()
