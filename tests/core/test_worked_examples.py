"""The worked examples of the system's description, through the real core."""

from __future__ import annotations

import pytest

from octavo.core import Policies
from octavo.core.policies import MAX_LENGTH, POWER_OF_TWO
from tests.core.desk import Desk


def test_1024_and_10_tokens_take_65_blocks_and_lose_6_slots() -> None:
    desk = Desk(100)
    request = desk.add("a", range(1024), max_tokens=10)
    desk.step()
    assert request.table is not None
    assert len(request.table) == 64
    desk.run()
    receipt = request.receipt
    assert (receipt.blocks, receipt.slots, receipt.tokens) == (65, 1040, 1034)
    assert receipt.slots_lost == 6
    assert receipt.stored == 1033  # the last token is never fed back
    assert receipt.slots_unwritten == 7


def test_reserving_2048_loses_1014_slots() -> None:
    desk = Desk(200, policies=Policies(allocator=MAX_LENGTH))
    request = desk.add("a", range(1024), max_tokens=2048 - 1024 + 1)
    desk.step()
    for _ in range(9):
        desk.step()
    desk.abort(request)
    assert (request.receipt.blocks, request.receipt.slots_lost) == (128, 1014)


def test_reserving_powers_of_two_doubles_the_output_buffer() -> None:
    desk = Desk(200, policies=Policies(allocator=POWER_OF_TWO))
    request = desk.add("a", range(1024), max_tokens=1000)
    for _ in range(34):  # 34 generated, 33 stored: the buffer of 32 has just been outgrown
        desk.step()
    assert request.table is not None
    assert len(request.table) == (1024 + 64) // 16


def test_10_000_token_prompt_beside_a_decode_under_2048() -> None:
    desk = Desk(1300)
    desk.add("B", range(40), max_tokens=50)
    desk.step()
    desk.add("A", range(1000, 11_000), max_tokens=5)
    widths = []
    for _ in range(6):
        desk.step()
        rows = desk.rows()
        start, end = rows["A"]
        widths.append(end - start)
        assert rows["B"][1] - rows["B"][0] == 1
    assert widths == [2047, 2047, 2047, 2047, 1812, 1]


def test_100_000_tokens_take_49_steps() -> None:
    desk = Desk(7000)
    request = desk.add("a", range(100_000), max_tokens=1)
    desk.run()
    assert len(desk.batches) == 49
    assert request.finish == "length"


def test_second_request_with_the_same_system_prompt_computes_only_its_own_200_tokens() -> None:
    desk = Desk(400)
    system = list(range(2000))
    first = desk.add("1", [*system, *range(5000, 5200)], max_tokens=1)
    desk.run()
    assert first.receipt.blocks == 138
    assert desk.cache.pool.cached == 137  # the partial block is not kept
    assert (first.receipt.written, first.receipt.unkept) == (137 * 16, 2200 - 137 * 16)
    second = desk.add("2", [*system, *range(7000, 7200)], max_tokens=1)
    desk.step()
    assert desk.rows()["2"] == (2000, 2200)
    assert (second.receipt.read, second.receipt.shared_blocks) == (2000, 125)
    desk.assert_right(first, second)
    totals = desk.scheduler.totals
    assert (totals.prefix_query_tokens, totals.prefix_hit_tokens) == (4400, 2000)


@pytest.mark.parametrize("n", [2, 8])
def test_equal_prompts_at_once_are_one_prefill(n: int) -> None:
    desk = Desk(400)
    requests = [desk.add(f"{i}", range(1000), max_tokens=3) for i in range(n)]
    desk.run()
    desk.assert_right(*requests)
    # One computes all 1,000 tokens; each other its unkept tail of 1000 - 62 * 16 = 8.
    prefill = 1000 + (n - 1) * 8
    decode = n * 2
    assert desk.runner.computed_tokens == prefill + decode
    for follower in requests[1:]:
        assert follower.receipt.read == 992
        assert follower.receipt.shared_in_flight == 992
    held = desk.cache.pool.total - desk.cache.pool.free
    assert held == 62  # one copy of each full block


def test_equal_prompts_in_chunks_are_one_prefill_too() -> None:
    desk = Desk(400, budget=512)
    leader, follower = (desk.add(name, range(1000), max_tokens=3) for name in "ab")
    desk.run()
    desk.assert_right(leader, follower)
    assert desk.runner.computed_tokens == 1000 + 8 + 4
    assert (follower.receipt.read, follower.receipt.shared_in_flight) == (992, 992)


def test_without_claims_equal_prompts_are_computed_side_by_side_but_kept_once() -> None:
    desk = Desk(400, policies=Policies(share_in_flight=False))
    requests = [desk.add(f"{i}", range(1000), max_tokens=1) for i in range(2)]
    desk.run()
    desk.assert_right(*requests)
    assert desk.runner.computed_tokens == 2000
    assert desk.cache.pool.cached == 62
    assert requests[0].receipt.written == 992
    assert (requests[1].receipt.written, requests[1].receipt.unkept) == (0, 1000)


def test_full_hit_recomputes_one_token_and_writes_nothing() -> None:
    desk = Desk(200)
    desk.add("1", range(1024), max_tokens=1)
    desk.run()
    again = desk.add("2", range(1024), max_tokens=10)
    desk.step()
    (row,) = desk.batches[-1].rows
    assert (row.start, row.end, row.write_from) == (1023, 1024, 1024)
    desk.run()
    assert (again.receipt.read, again.receipt.written, again.receipt.unkept) == (1023, 0, 1)
    desk.assert_right(again)
