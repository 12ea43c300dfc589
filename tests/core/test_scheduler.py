"""Named situations of the scheduler: who waits, who is preempted, who is refused, who is billed."""

from __future__ import annotations

import pytest

from octavo.core import (
    Finish,
    Limits,
    PinWish,
    Policies,
    Request,
    RowResult,
    Sliding,
    StepResult,
)
from octavo.core.policies import MAX_LENGTH, POWER_OF_TWO, Allocator
from octavo.core.spec import Full
from tests.core.desk import ROOT, Desk


def test_leader_aborted_the_best_waiter_becomes_the_producer() -> None:
    desk = Desk(400, budget=512)
    first, second, third = (desk.add(name, range(1000), max_tokens=3) for name in "abc")
    desk.step()
    assert set(desk.rows()) == {"a"}
    desk.abort(first)
    desk.step()
    assert desk.rows()["b"] == (512, 1000)  # what the leader finished survives
    assert third.table is None
    desk.run()
    desk.assert_right(second, third)
    assert (second.receipt.read, third.receipt.read) == (512, 992)
    assert first.receipt.written == 512
    assert desk.runner.computed_tokens == 512 + 488 + 8 + 4
    desk.assert_empty()


def test_producer_aborted_before_its_first_step_leaves_no_claim() -> None:
    desk = Desk(400)
    first = desk.add("a", range(1000))
    desk.abort(first)
    assert first.receipt.admitted_at is None
    second = desk.add("b", range(1000))
    desk.run()
    desk.assert_right(second)
    desk.assert_empty()


def test_pool_full_of_pins_yields_to_a_lone_request_oldest_first() -> None:
    desk = Desk(100)
    for i in range(5):
        start = i * 1000
        wish = PinWish(f"pin {i}", 160, 300.0)
        desk.add(f"p{i}", range(start, start + 160), max_tokens=1, pins=(wish,))
        desk.run()
    assert desk.cache.pins.blocks == 50
    request = desk.add("big", range(50_000, 50_000 + 1100), max_tokens=3)
    desk.run()
    desk.assert_right(request)
    assert "pin 0" not in desk.cache.pins
    assert "pin 1" not in desk.cache.pins
    assert "pin 4" in desk.cache.pins


def test_pinned_blocks_survive_pressure_and_expire() -> None:
    desk = Desk(60)
    wish = PinWish("system", 320, 50.0)
    desk.add("a", range(320), max_tokens=1, pins=(wish,))
    desk.run()
    for i in range(4):
        desk.add(f"noise {i}", range(10_000 * (i + 1), 10_000 * (i + 1) + 600), max_tokens=1)
        desk.run()
    again = desk.add("b", range(320), max_tokens=1)
    desk.run()
    assert again.receipt.read == 319
    desk.cache.tick(1000.0)
    assert not len(desk.cache.pins)
    desk.assert_empty()


def test_pinned_writes_are_billed_by_their_time_to_live() -> None:
    desk = Desk(200)
    short, long = PinWish("short", 320, 300.0), PinWish("long", 160, 3600.0)
    request = desk.add("a", range(500), max_tokens=1, pins=(short, long))
    desk.run()
    receipt = request.receipt
    assert (receipt.written_1h, receipt.written_5m, receipt.written_implicit) == (160, 160, 176)
    assert receipt.read + receipt.written + receipt.unkept == 500


def test_fork_shares_full_blocks_and_copies_the_partial_tail_once() -> None:
    desk = Desk(200)
    leader = desk.add("c0", range(1030), max_tokens=20)
    children = [
        desk.add(f"c{i}", range(1030), max_tokens=20, source=leader, choice=i) for i in (1, 2, 3)
    ]
    desk.step()
    assert set(desk.rows()) == {"c0"}
    desk.step()
    batch = desk.batches[-1]
    assert [move.n_tokens for move in batch.moves] == [6, 6, 6]
    assert desk.rows()["c1"] == (1029, 1030)  # one read-only token for its own logits
    assert desk.cache.pool.shared == 64
    assert desk.cache.pool.total - desk.cache.pool.available == 64 + 4
    desk.run()
    desk.assert_right(leader, *children)
    assert desk.runner.computed_tokens == 1030 + 3 + 4 * 19
    assert [child.receipt.copied_blocks for child in children] == [1, 1, 1]
    assert desk.scheduler.totals.prefix_query_tokens == 1030  # a fork asks nothing of the index


def test_fork_works_with_the_prefix_cache_off() -> None:
    desk = Desk(200)
    leader = desk.add("c0", range(1030), max_tokens=20, cached=False)
    child = desk.add("c1", range(1030), max_tokens=20, source=leader, choice=1, cached=False)
    desk.run()
    desk.assert_right(leader, child)
    assert desk.runner.computed_tokens == 1030 + 1 + 2 * 19
    assert desk.cache.pool.free == 200


def test_fork_whose_leader_is_gone_matches_the_index() -> None:
    desk = Desk(200)
    leader = desk.add("c0", range(1030), max_tokens=1)
    child = desk.add("c1", range(1030), max_tokens=3, source=leader, choice=1)
    desk.run()
    desk.assert_right(leader, child)
    assert child.receipt.read == 1024


def test_more_choices_than_seats_run_in_waves() -> None:
    desk = Desk(100, seqs=2)
    leader = desk.add("c0", range(40), max_tokens=3)
    children = [
        desk.add(f"c{i}", range(40), max_tokens=3, source=leader, choice=i) for i in range(1, 7)
    ]
    desk.run()
    desk.assert_right(leader, *children)


def test_fork_and_dedup_in_one_step() -> None:
    """A child forks a leader in the step in which the leader's own copy of a block is given up."""
    desk = Desk(200, policies=Policies(share_in_flight=False))
    other, leader = (desk.add(name, range(64), max_tokens=40) for name in ("other", "c0"))
    while leader.computed < 79:
        desk.step()
    assert leader.table is not None
    assert other.table is not None
    duplicate = leader.table.groups[0][4]
    child = desk.add("c1", range(64), max_tokens=40, source=leader, choice=1)
    desk.step()
    assert desk.rows()["c1"] == (63, 64)
    assert leader.table.groups[0][4] == other.table.groups[0][4] != duplicate
    desk.run()
    desk.assert_right(other, leader, child)
    desk.assert_empty()


def test_two_requests_completing_one_key_in_one_step_keep_one_block() -> None:
    desk = Desk(40, budget=128, policies=Policies(share_in_flight=False))
    a, b = desk.add("a", range(32), max_tokens=4), desk.add("b", range(32), max_tokens=4)
    desk.step()
    assert a.table is not None
    assert b.table is not None
    assert list(a.table.groups[0][:2]) == list(b.table.groups[0][:2])
    stored = [key for event in desk.events if hasattr(event, "keys") for key in event.keys]
    assert len(stored) == len(set(stored)) == 2  # no event for the duplicate
    desk.run()
    desk.assert_right(a, b)
    desk.assert_empty()


def test_request_larger_than_the_pool_is_refused_at_once_with_the_arithmetic() -> None:
    desk = Desk(10)
    refusal = desk.scheduler.add(desk.request("a", range(161)), 0.0)
    assert refusal is not None
    assert str(refusal) == "needs 11 blocks, 10 of 10 are available"
    assert not desk.scheduler.busy


def test_length_is_clamped_to_the_pool_and_ends_at_the_wall() -> None:
    desk = Desk(10)
    request = desk.add("a", range(150), max_tokens=1000)
    desk.run()
    assert request.finish is Finish.LENGTH
    assert len(request.tokens) == 161  # 160 slots, and the last token needs none


def test_prompt_that_exactly_fills_the_pool_runs() -> None:
    desk = Desk(10)
    request = desk.add("a", range(160), max_tokens=5)
    desk.run()
    assert (len(request.tokens), request.finish) == (161, Finish.LENGTH)


def test_preemption_takes_the_last_in_rank_and_it_catches_up() -> None:
    desk = Desk(12)
    first = desk.add("a", range(80), max_tokens=60)
    second = desk.add("b", range(1000, 1080), max_tokens=60)
    desk.run()
    desk.assert_right(first, second)
    assert first.receipt.preemptions == 0
    assert second.receipt.preemptions >= 1
    assert second.receipt.recomputed > 0
    assert desk.scheduler.totals.preemptions == second.receipt.preemptions


def test_the_first_in_rank_is_never_preempted_and_nothing_starves() -> None:
    desk = Desk(16, seqs=8, budget=64)
    requests = [desk.add(f"{i}", range(1000 * i, 1000 * i + 60), max_tokens=80) for i in range(8)]
    desk.run()
    desk.assert_right(*requests)
    assert requests[0].receipt.preemptions == 0


def test_better_priority_preempts_a_running_worse_one_and_ties_do_not() -> None:
    desk = Desk(12)
    low = desk.add("low", range(160), max_tokens=20, priority=5)
    desk.step()
    same = desk.add("same", range(2000, 2100), max_tokens=2, priority=5)
    desk.step()
    assert low.table is not None
    assert same.table is None
    high = desk.add("high", range(1000, 1100), max_tokens=2, priority=0)
    desk.step()
    assert set(desk.rows()) == {"high"}
    desk.run()
    desk.assert_right(low, same, high)
    assert high.receipt.finished_at < low.receipt.finished_at  # type: ignore[operator]


def test_nobody_waits_for_a_worse_priority() -> None:
    desk = Desk(400, budget=512)
    desk.add("slow", range(1000), priority=9)
    desk.step()
    desk.add("urgent", range(1000), priority=0, max_tokens=1)
    desk.step()
    assert desk.rows()["urgent"][0] == 512


def test_decode_goes_first_and_prefill_takes_the_rest() -> None:
    desk = Desk(3000, budget=512)
    streams = [desk.add(f"s{i}", range(i, i + 20), max_tokens=100) for i in range(8)]
    desk.step()
    desk.add("long", range(100_000, 132_000), max_tokens=1)
    for _ in range(20):
        desk.step()
        assert all(desk.rows()[stream.id][1] - desk.rows()[stream.id][0] == 1 for stream in streams)
        assert sum(end - start for start, end in desk.rows().values()) == 512


def test_static_batching_admits_only_into_an_empty_house() -> None:
    desk = Desk(100, policies=Policies(continuous=False))
    first = desk.add("a", range(20), max_tokens=6)
    desk.step()
    second = desk.add("b", range(50, 70), max_tokens=2)
    desk.step()
    assert second.table is None
    desk.run()
    assert second.receipt.admitted_at >= first.receipt.finished_at  # type: ignore[operator]


def test_whole_prompts_refuse_what_no_step_can_hold() -> None:
    desk = Desk(100, budget=128, policies=Policies(splits=False))
    assert desk.scheduler.add(desk.request("a", range(129)), 0.0) is not None
    request = desk.add("b", range(100), max_tokens=400)
    desk.run()
    assert len(request.tokens) == 129


def test_reserving_fits_fewer_requests_than_paging() -> None:
    def running(policies: Policies) -> int:
        desk = Desk(64, policies=policies)
        for i in range(20):
            desk.add(f"{i}", range(100 * i, 100 * i + 32), max_tokens=225)
        desk.step()
        return len(desk.scheduler.running)

    assert (running(Policies()), running(Policies(allocator=MAX_LENGTH))) == (20, 4)


def test_a_row_error_ends_that_request_only() -> None:
    desk = Desk(100)
    bad, good = desk.add("bad", range(20)), desk.add("good", range(100, 120), max_tokens=3)
    batch = desk.scheduler.schedule(0.0)
    results = list(desk.runner.run(batch).rows)
    results[0] = RowResult(error="logits are not finite")
    deltas = desk.scheduler.update(batch, StepResult(results), 0.5)
    desk.scheduler.check()
    assert [(d.request.id, d.finish) for d in deltas] == [("bad", Finish.ERROR), ("good", None)]
    assert bad.receipt.written == 0
    desk.run()
    desk.assert_right(good)
    desk.assert_empty()


def test_a_failed_step_ends_what_ran_keeps_what_waits_and_publishes_nothing() -> None:
    desk = Desk(100, seqs=1)
    ran, waits = desk.add("ran", range(40)), desk.add("waits", range(40))
    desk.scheduler.schedule(0.0)
    deltas = desk.scheduler.fail("out of luck", 0.5)
    assert [(d.request, d.finish) for d in deltas] == [(ran, Finish.ERROR)]
    desk.scheduler.check()
    assert desk.cache.pool.free == 100
    desk.run()
    desk.assert_right(waits)


def test_a_stop_token_inside_accepted_drafts_truncates() -> None:
    desk = Desk(100)
    request = desk.add("a", range(20), max_tokens=30)
    desk.step()
    answer = desk.expected(request)
    request.limits = Limits(30, frozenset([answer[2]]))
    request.drafts = tuple(answer[1:6])
    (delta,) = desk.step()
    assert list(delta.tokens) == answer[1:3]
    assert delta.finish is Finish.STOP
    desk.assert_empty()


def test_rejected_drafts_are_neither_kept_nor_published() -> None:
    desk = Desk(100)
    request = desk.add("a", range(15), max_tokens=30)
    desk.step()
    right = desk.expected(request)
    request.drafts = (right[1], (right[2] + 1) % 50, 3, 4)
    desk.step()
    assert len(request.tokens) == 15 + 3
    assert request.computed == 17
    assert request.table is not None
    assert len(request.table) == 2
    assert not desk.cache.pool.is_published(request.table.groups[0][1])
    desk.run()
    desk.assert_right(request)


def test_prompt_scores_on_a_warm_cache_share_blocks_and_recompute_all() -> None:
    desk = Desk(200)
    desk.add("a", range(1024), max_tokens=1)
    desk.run()
    scored = desk.add("b", range(1024), max_tokens=2, scored=0)
    desk.step()
    (row,) = desk.batches[-1].rows
    assert (row.start, row.end, row.write_from, row.logits_from) == (0, 1024, 1024, 0)
    desk.run()
    assert (scored.receipt.read, scored.receipt.written, scored.receipt.unkept) == (0, 0, 1024)
    desk.assert_right(scored)


@pytest.mark.parametrize("cached", [True, False])
def test_each_prompt_position_is_scored_once_also_across_preemptions(cached: bool) -> None:
    desk = Desk(12, budget=24, seqs=4)
    scored = desk.add("s", range(100, 190), max_tokens=20, scored=0, priority=5, cached=cached)
    asked: list[int] = []
    while desk.scheduler.busy:
        desk.step()
        for row in desk.batches[-1].rows:
            if row.request is scored:
                asked += range(row.logits_from, min(row.end, scored.n_prompt))
        if scored.receipt.preemptions < 2 and 0 < scored.computed < scored.n_prompt:
            name = f"urgent {len(desk.batches)}"
            desk.add(name, range(len(desk.batches), len(desk.batches) + 130), cached=cached)
    assert scored.receipt.preemptions == 2
    assert asked == list(range(90))
    assert scored.restart(95) == 95  # once all are scored, nothing holds it back
    desk.assert_right(scored)


def test_sliding_group_gives_blocks_back_and_hits_by_its_window() -> None:
    desk = Desk(200, kinds=(Full(), Sliding(64)), budget=128)
    request = desk.add("a", range(640), max_tokens=2)
    for _ in range(5):
        desk.step()
    assert request.table is not None
    full, sliding = request.table.groups
    assert 0 not in full
    assert list(sliding).count(0) == (640 - 64 + 1) // 16
    desk.run()
    again = desk.add("b", [*range(640), 9, 9, 9], max_tokens=2)
    desk.step()
    assert desk.rows()["b"][0] == 640
    desk.run()
    desk.assert_right(request, again)
    desk.assert_empty()


def test_window_smaller_pool_runs_prompts_longer_than_the_pool() -> None:
    desk = Desk(24, kinds=(Sliding(64),), budget=64, seqs=8)
    request = desk.add("a", range(2000), max_tokens=5)
    desk.run()
    desk.assert_right(request)


def test_seats_are_stable_while_running_and_announced_when_given_up() -> None:
    desk = Desk(100, seqs=3)
    a = desk.add("a", range(20), max_tokens=2)
    b = desk.add("b", range(100, 120), max_tokens=6)
    desk.step()
    seats = {row.request.id: row.seat for row in desk.batches[-1].rows}
    desk.step()
    assert a.finish is not None
    c = desk.add("c", range(200, 220), max_tokens=3)
    desk.step()
    rows = {row.request.id: row.seat for row in desk.batches[-1].rows}
    assert rows["b"] == seats["b"]
    assert desk.batches[-1].vacated == [seats["a"]]
    desk.run()
    desk.assert_right(b, c)


def test_block_seconds_count_every_holder() -> None:
    desk = Desk(100)
    request = desk.add("a", range(32), max_tokens=4)
    desk.run()
    # 2 blocks for the first step of 1 s, 3 for the 2.5 s after it: steps start at 0, 1, 2, 3
    # and results arrive half a second later.
    assert request.receipt.block_seconds == pytest.approx(2 * 1 + 3 * 2.5)
    assert request.receipt.peak_blocks == 3


def test_abort_of_a_waiting_and_of_a_running_request_frees_everything() -> None:
    desk = Desk(100, seqs=1)
    running: Request = desk.add("a", range(500), max_tokens=50)
    waiting = desk.add("b", range(500, 600), max_tokens=50)
    desk.step()
    desk.abort(waiting)
    desk.abort(running)
    desk.abort(running)
    assert not desk.scheduler.busy
    desk.assert_empty()


def test_a_step_whose_results_never_came_is_planned_again_with_its_copies() -> None:
    desk = Desk(100)
    leader = desk.add("c0", range(40), max_tokens=6)
    child = desk.add("c1", range(40), max_tokens=6, source=leader, choice=1)
    desk.step()
    lost = desk.scheduler.schedule(desk.now)
    assert len(lost.moves) == 1
    desk.step()
    assert desk.batches[-1].moves == lost.moves
    desk.run()
    desk.assert_right(leader, child)


def test_a_static_batch_takes_in_its_own_forks_and_followers() -> None:
    desk = Desk(200, policies=Policies(continuous=False))
    leader = desk.add("c0", range(100), max_tokens=20)
    fork = desk.add("c1", range(100), max_tokens=20, source=leader, choice=1)
    twin = desk.add("twin", range(100), max_tokens=20)
    desk.step()
    late = desk.add("late", range(500, 520), max_tokens=2)
    desk.step()
    assert set(desk.rows()) == {"c0", "c1", "twin"}
    desk.run()
    desk.assert_right(leader, fork, twin, late)
    assert late.receipt.admitted_at > leader.receipt.finished_at  # type: ignore[operator]


def test_better_priority_gets_in_when_every_token_of_the_budget_is_taken() -> None:
    desk = Desk(100, budget=2, seqs=2)
    low = [
        desk.add(f"low {i}", range(50 * i, 50 * i + 2), max_tokens=30, priority=5) for i in (0, 1)
    ]
    while any(request.receipt.first_token_at is None for request in low):
        desk.step()
    high = desk.add("high", range(900, 902), max_tokens=2)
    desk.step()
    assert "high" in desk.rows()
    desk.run()
    desk.assert_right(high, *low)


def test_nobody_is_preempted_in_vain() -> None:
    desk = Desk(30)
    first = desk.add("first", range(200), max_tokens=200)
    low = desk.add("low", range(1000, 1100), max_tokens=20, priority=5)
    desk.step()
    large = desk.add("large", range(2000, 2320), max_tokens=2, priority=1)
    for _ in range(5):
        desk.step()
    assert low.receipt.preemptions == 0  # what it holds would not be enough
    desk.run()
    desk.assert_right(first, low, large)


def test_a_better_rank_takes_claims_over() -> None:
    desk = Desk(400, budget=512)
    slow = desk.add("slow", range(2000), priority=9, max_tokens=1)
    desk.step()
    urgent = desk.add("urgent", range(2000), priority=0, max_tokens=1)
    desk.step()
    assert desk.rows() == {"urgent": (512, 1023), "slow": (512, 513)}
    desk.abort(slow)
    late = desk.add("late", range(2000), priority=0, max_tokens=1)
    desk.step()
    assert set(desk.rows()) == {"urgent"}  # it waits, though the first to claim is gone
    desk.run()
    desk.assert_right(urgent, late)
    assert desk.runner.computed_tokens == 512 + 1 + 1488 + 1


def test_pins_are_billed_only_if_they_are_kept_and_reach_no_further_than_the_prompt() -> None:
    desk = Desk(40)
    too_large = PinWish("too large", 400, 3600.0)
    request = desk.add("a", range(480), max_tokens=1, pins=(too_large,))
    desk.run()
    assert (request.receipt.written_1h, request.receipt.written_implicit) == (0, 480)
    assert not len(desk.cache.pins)
    beyond = PinWish("beyond", 10_000, 3600.0)
    request = desk.add("b", range(1000, 1040), max_tokens=1, pins=(beyond,))
    desk.run()
    assert (request.receipt.written_1h, request.receipt.unkept) == (32, 8)
    assert desk.cache.pins.blocks == 2


def test_a_receipt_without_a_first_token_adds_up_to_what_was_done() -> None:
    desk = Desk(100, budget=128, seqs=1)
    begun, queued = desk.add("begun", range(400)), desk.add("queued", range(500, 600))
    desk.step()
    desk.abort(begun)
    desk.abort(queued)
    for request, done in ((begun, 128), (queued, 0)):
        receipt = request.receipt
        assert receipt.read + receipt.written + receipt.unkept == done
        assert receipt.finished_at is not None


@pytest.mark.parametrize("allocator", [MAX_LENGTH, POWER_OF_TWO])
def test_a_window_under_a_reserving_allocator_is_clamped_not_stuck(allocator: Allocator) -> None:
    policies = Policies(allocator=allocator)
    desk = Desk(24, kinds=(Sliding(64),), budget=64, seqs=8, policies=policies)
    request = desk.add("a", range(200), max_tokens=5000)
    desk.run()
    desk.assert_right(request)
    assert len(request.tokens) == 24 * 16 + 1


def test_clear_under_a_running_request_leaves_no_hole_in_the_index() -> None:
    """The request may not publish below a parent that another one has published again."""
    desk = Desk(40, seqs=4)
    long = desk.add("long", range(128), max_tokens=120)
    desk.step()
    desk.cache.clear()
    twin = desk.add("twin", range(128), max_tokens=1)
    while twin.finish is None or long.computed < 200:
        desk.step()
    noise = desk.add("noise", range(5000, 5320), max_tokens=2)
    desk.run()
    again = desk.add("again", long.tokens, max_tokens=3)
    desk.run()
    desk.assert_right(long, twin, noise, again)


def test_clear_of_one_root_leaves_nothing_below_it_in_a_window() -> None:
    desk = Desk(200, kinds=(Full(), Sliding(32)), budget=64, seqs=8)
    desk.add("a", range(300), max_tokens=2)
    desk.run()
    assert any(desk.cache.pool.entries())
    desk.cache.clear(ROOT)
    assert not any(desk.cache.pool.entries())
    desk.assert_empty()


def test_a_prompt_is_totalled_once_with_what_was_read_of_it() -> None:
    """Once for all forks of it, and once although it is preempted before or after its answer."""
    desk = Desk(blocks=9, block_tokens=4)
    leader = desk.add("a", range(10), max_tokens=12)
    desk.add("fork", range(10), max_tokens=12, source=leader, choice=1)
    desk.add("b", range(20, 32), max_tokens=12)
    desk.run()
    totals = desk.scheduler.totals
    assert totals.preemptions > 0
    assert (totals.prompt_tokens, totals.prompt_read_tokens) == (22, 0)
    again = desk.add("c", range(20, 32))
    desk.run()
    assert totals.prompt_tokens == 34
    assert totals.prompt_read_tokens == again.receipt.read > 0
    aborted = desk.add("d", range(10))
    desk.abort(aborted)
    assert totals.prompt_tokens == 34
