"""Guessing from earlier text: what is found, how much is dared, and that answers never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core import Limits, Request, Row, TokenChain
from octavo.core.lookup import (
    FIRST_PAUSE_TOKENS,
    MIN_MATCH_TOKENS,
    RECENT_ROOTS,
    RECENT_TOKENS,
    Lookup,
    Text,
)
from tests.core.desk import ROOT, Desk


def request(tokens: list[int], *, root: bytes | None = ROOT, max_tokens: int = 100) -> Request:
    return Request("a", tokens, limits=Limits(max_tokens), chain=TokenChain(root, 16))


def guess(lookup: Lookup, one: Request, n_running: int) -> tuple[int, ...]:
    (drafts,) = lookup.propose([one], n_running)
    return drafts


def learn(lookup: Lookup, one: Request, n_drafts: int, n_accepted: int) -> None:
    lookup.observe([Row(one, 0, 0, 1, 0, 0, (0,) * n_drafts, True)], [n_accepted])


@given(st.lists(st.integers(0, 2), min_size=3, max_size=60))
def test_find_is_the_longest_match_by_brute_force_or_one_as_good_among_the_latest(
    tokens: list[int],
) -> None:
    text = Text()
    text.extend(tokens)
    ending = tokens[-32:]
    length, place = text.find(ending)
    pair = tuple(tokens[-2:])
    places = [i + 2 for i in range(len(tokens) - 2) if tuple(tokens[i : i + 2]) == pair][-8:]

    def common(at: int) -> int:
        n = 0
        while n < min(at, len(ending)) and tokens[at - 1 - n] == ending[-1 - n]:
            n += 1
        return n

    # The pair at the very end has no successor; it takes one of the eight remembered places.
    expected = max((common(at) for at in places[-7:]), default=0)
    assert length >= min(expected, 32)
    assert length == 0 or (place < len(tokens) and common(place) >= length)


def test_it_guesses_what_followed_the_same_words() -> None:
    lookup = Lookup(most_tokens=4, most_running=8)
    assert guess(lookup, request([1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3]), 1) == (9, 8, 7, 6)
    assert guess(lookup, request([1, 2, 3, 4, 5]), 1) == ()
    assert guess(lookup, request([9, 2, 3, 7, 1, 2, 3]), 1) == ()  # two equal tokens are too few
    assert MIN_MATCH_TOKENS == 3


def test_the_longest_match_wins_then_the_latest() -> None:
    lookup = Lookup(most_tokens=1, most_running=8)
    longest = [1, 2, 3, 4, 50, 0, 2, 3, 4, 60, 0, 1, 2, 3, 4]
    latest = [1, 2, 3, 50, 0, 1, 2, 3, 60, 7, 1, 2, 3]
    assert guess(lookup, request(longest), 1) == (50,)
    assert guess(lookup, request(latest), 1) == (60,)


def test_it_guesses_from_recent_requests_of_the_same_root_only() -> None:
    lookup = Lookup(most_tokens=4, most_running=8)
    earlier = request([10, 11, 12, 13, 14])
    guess(lookup, earlier, 1)
    lookup.leave(earlier)
    assert guess(lookup, request([5, 10, 11, 12]), 1) == (13, 14)
    assert guess(lookup, request([5, 10, 11, 12], root=b"s" * 32), 1) == ()
    assert guess(lookup, request([5, 10, 11, 12], root=None), 1) == ()


def test_no_guess_beyond_the_room_nor_beside_a_full_house() -> None:
    lookup = Lookup(most_tokens=4, most_running=2)
    words = [1, 2, 3, 9, 8, 7, 1, 2, 3]
    assert guess(lookup, request(words, max_tokens=3), 1) == (9, 8)
    assert guess(lookup, request(words, max_tokens=1), 1) == ()
    assert guess(lookup, request(words), 3) == ()


def test_it_dares_less_after_a_failure_and_is_quiet_after_two() -> None:
    lookup = Lookup(most_tokens=4, most_running=8)
    one = request([1, 2, 3, 9, 8, 7, 1, 2, 3])
    assert len(guess(lookup, one, 1)) == 4
    learn(lookup, one, 4, 1)
    assert len(guess(lookup, one, 1)) == 2
    learn(lookup, one, 2, 2)
    assert len(guess(lookup, one, 1)) == 4
    learn(lookup, one, 4, 0)
    learn(lookup, one, 1, 0)
    assert guess(lookup, one, 1) == ()
    one.tokens += [9, 8, 7, 1, 2, 3] * 4
    assert len(one.tokens) > 9 + FIRST_PAUSE_TOKENS
    assert guess(lookup, one, 1) != ()


def test_what_it_remembers_is_bounded() -> None:
    lookup = Lookup(most_tokens=4, most_running=8)
    for i in range(RECENT_ROOTS + 10):
        one = request([i] * 10, root=i.to_bytes(32, "big"))
        guess(lookup, one, 1)
        lookup.leave(one)
    assert len(lookup._recent) == RECENT_ROOTS
    for i in range(10):
        one = request([i] * 20_000)
        guess(lookup, one, 1)
        lookup.leave(one)
    assert len(lookup._recent[ROOT].tokens) <= 2 * RECENT_TOKENS
    assert not lookup._guessers


@pytest.mark.parametrize("cached", [True, False])
def test_answers_are_the_same_and_come_in_fewer_steps(cached: bool) -> None:
    """The desk's model repeats nothing by itself, so a second request repeats the first one."""

    def run(drafter: Lookup | None) -> tuple[Desk, list[Request]]:
        desk = Desk(200, drafter=drafter)
        first = desk.add("first", range(40), max_tokens=60, cached=cached)
        desk.run()
        second = desk.add("second", range(40), max_tokens=60, cached=cached)
        desk.run()
        desk.assert_right(first, second)
        desk.assert_empty()
        return desk, [first, second]

    plain, _ = run(None)
    guessing, _ = run(Lookup(most_tokens=4, most_running=8))
    totals = guessing.scheduler.totals
    assert plain.scheduler.totals.drafted_tokens == 0
    if cached:  # without a root nothing is remembered
        assert totals.accepted_tokens == totals.drafted_tokens >= 40
        assert totals.steps < plain.scheduler.totals.steps - 30
    else:
        assert totals.accepted_tokens < 10
