"""Who gets blocks and tokens when there are not enough: order, progress and what pressure costs."""

from __future__ import annotations

import random

import pytest

from octavo.core import Finish, Request
from tests.core.desk import Desk


def work(request: Request) -> int:
    """Tokens that its answer needs computed when nothing is computed twice."""
    return len(request.tokens) - 1


def test_a_sequence_that_outgrows_the_pool_ends_by_length_and_the_others_go_on() -> None:
    """1,000 + 24 tokens in a pool of 1,008: the wall is met while decoding, not at the door."""
    desk = Desk(63)
    long = desk.add("long", range(1000), max_tokens=24)
    others = [desk.add(f"{i}", range(5000 + 100 * i, 5040 + 100 * i)) for i in range(3)]
    desk.run()
    assert (long.finish, len(long.tokens)) == (Finish.LENGTH, 1009)  # the last one needs no slot
    assert all(other.finish is Finish.LENGTH for other in others)
    desk.assert_right(long, *others)
    desk.assert_empty()


def test_a_prompt_of_one_token_more_than_the_pool_is_refused_and_nothing_waits_for_it() -> None:
    desk = Desk(63)
    assert desk.scheduler.add(desk.request("large", range(1009)), 0.0) is not None
    fills = desk.add("fills", range(1008))
    behind = desk.add("behind", range(5000, 5040))
    desk.run()
    desk.assert_right(fills, behind)


def test_who_waits_for_blocks_in_the_making_holds_up_nobody_behind() -> None:
    desk = Desk(400, budget=512)
    leader, follower = (desk.add(name, range(2000)) for name in ("leader", "follower"))
    behind = desk.add("behind", range(5000, 5040), max_tokens=2)
    while leader.receipt.first_token_at is None:
        desk.step()
        assert "follower" not in desk.rows()
    assert desk.rows() == {"leader": (1536, 2000), "behind": (0, 40)}  # what the budget leaves
    desk.run()
    desk.assert_right(leader, follower, behind)


def test_a_large_head_of_the_queue_is_not_overtaken_for_ever() -> None:
    """Small requests keep coming; the one that needs nearly all of the pool still gets its turn."""
    desk = Desk(40, seqs=8)
    small = [desk.add(f"first {i}", range(100 * i, 100 * i + 60), max_tokens=30) for i in range(6)]
    desk.step()
    large = desk.add("large", range(10_000, 10_600), max_tokens=2)
    while large.finish is None:
        at = 20_000 + 100 * len(desk.batches)
        small.append(desk.add(f"later {at}", range(at, at + 60), max_tokens=30))
        desk.step()
        assert len(desk.batches) < 40
    desk.run()
    desk.assert_right(large, *small)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("share", "most_recomputed"), [(0.95, 0.1), (0.7, 0.3), (0.25, 0.75)])
def test_preemption_computes_a_bounded_part_again(
    share: float, most_recomputed: float, cached: bool
) -> None:
    """16 answers of 256 tokens in a part of the pool that they need: no thrashing at any size."""
    total = 16 * 17
    desk = Desk(int(total * share))
    requests = [
        desk.add(f"{i}", range(1000 * i, 1000 * i + 16), max_tokens=256, cached=cached)
        for i in range(16)
    ]
    while desk.scheduler.busy:
        batch = desk.scheduler.schedule(desk.now)
        desk.scheduler.update(batch, desk.runner.run(batch), desk.now)
        desk.now += 1
    desk.scheduler.check()
    desk.assert_right(*requests)
    recomputed = sum(request.receipt.recomputed for request in requests)
    assert 0 < recomputed <= most_recomputed * sum(map(work, requests))
    # Nobody pays for all: the worst one is preempted a few times and computes about twice its own.
    assert max(request.receipt.preemptions for request in requests) <= 4
    assert all(request.receipt.recomputed <= 2 * work(request) for request in requests)


def test_a_preempted_request_comes_back_before_those_that_arrived_later() -> None:
    desk = Desk(12)
    first = desk.add("first", range(80), max_tokens=60)
    second = desk.add("second", range(1000, 1080), max_tokens=60)
    while not second.receipt.preemptions:
        desk.step()
    later = [desk.add(f"{i}", range(2000 + i, 2016 + i), max_tokens=2) for i in (0, 500)]
    while second.table is None:
        assert all(each.table is None for each in later)
        desk.step()
    desk.run()
    desk.assert_right(first, second, *later)


def mixed_traffic(seed: int) -> Desk:
    """Forty requests of three priorities and six prefixes in a pool that is too small for them."""
    rnd = random.Random(seed)
    desk = Desk(rnd.choice([16, 20, 24]), block_tokens=8, budget=rnd.choice([8, 32]), seqs=6)
    requests: list[Request] = []
    while desk.scheduler.busy or len(requests) < 40:
        for _ in range(rnd.randrange(3) if len(requests) < 40 else 0):
            start = rnd.randrange(6) * 1000
            prompt = range(start, start + rnd.randrange(1, 90))
            limits = {"max_tokens": rnd.randrange(1, 30), "priority": rnd.randrange(3)}
            requests.append(desk.add(f"{len(requests)}", prompt, **limits))
        held = [each for each in requests if each.table is not None]
        desk.step()
        rows = [row.request for row in desk.batches[-1].rows]
        assert len(set(rows)) == len(rows)
        best = min(held, key=lambda each: each.rank, default=None)
        # Only a newcomer of better rank may keep the best of those running from its next token.
        assert best is None or min(each.rank for each in rows) <= best.rank
        assert len(desk.batches) < 3000
    desk.assert_right(*requests)
    desk.assert_empty()
    return desk


def test_mixed_priorities_in_a_full_pool_lose_nobody_and_undo_no_planned_row() -> None:
    desks = [mixed_traffic(seed) for seed in range(12)]
    assert sum(desk.scheduler.totals.preemptions for desk in desks) > 30


def test_of_those_that_wait_the_better_priority_ends_first() -> None:
    desk = Desk(20, seqs=4)
    low = [desk.add(f"low {i}", range(1000 * i, 1000 * i + 70), max_tokens=40, priority=9)
           for i in range(4)]  # fmt: skip
    for _ in range(3):
        desk.step()
    urgent = [
        desk.add(f"urgent {p}", range(9000 + 500 * p, 9100 + 500 * p), max_tokens=10, priority=p)
        for p in (3, 1, 2)
    ]
    desk.run()
    ends = {each.priority: each.receipt.finished_at or 0.0 for each in urgent}
    assert ends[1] <= ends[2] <= ends[3] < max(each.receipt.finished_at or 0.0 for each in low)
    desk.assert_right(*low, *urgent)


def test_tenants_with_other_roots_share_no_block_cached_or_in_flight() -> None:
    desk = Desk(400)
    mine = desk.add("mine", range(1000), max_tokens=2)
    theirs = desk.add("theirs", range(1000), max_tokens=2, root=b"s" * 32)
    desk.step()
    assert desk.rows() == {"mine": (0, 1000), "theirs": (0, 1000)}
    assert mine.table is not None
    assert theirs.table is not None
    assert not set(mine.table.groups[0]) & set(theirs.table.groups[0])
    desk.run()
    again = desk.add("again", range(1000), max_tokens=2)
    desk.run()
    assert (mine.receipt.read, theirs.receipt.read, again.receipt.read) == (0, 0, 992)
    desk.assert_right(mine, theirs, again)
