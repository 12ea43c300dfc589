"""Why tokens were written: each reason, its tokens and its dollars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.pricing.api_prices import Layers
from octavo.usage.message import Message, Part
from octavo.usage.misses import misses
from octavo.usage.turns import Reason, Turn, minimum_tokens, turns
from tests.usage.conftest import OPUS, answer, read, usage

COMPACTED = {"type": "system", "subtype": "compact_boundary", "sessionId": "session-1"}


def found(logs: Path, *rows: dict[str, Any]) -> list[Turn]:
    history = read(logs, rows)
    return list(turns(history.messages, history.compactions))


def boundary(seconds: float) -> dict[str, Any]:
    return COMPACTED | {"timestamp": answer("x", seconds)["timestamp"]}


FIRST = answer("a", 0, m5=10_000)


def test_a_conversation_that_grows_misses_nothing(logs: Path) -> None:
    first, second = found(logs, FIRST, answer("b", 60, read=10_000, m5=500))
    assert (first.reason, first.missed) == (Reason.FIRST, 0)
    assert (second.reason, second.missed, second.held) == (Reason.NEW, 0, 10_000)


@pytest.mark.parametrize(
    ("gap", "kind", "reason"),
    [
        (120, "m5", Reason.CHANGED),
        (239, "m5", Reason.CHANGED),
        (241, "m5", Reason.UNKNOWN),  # the request came earlier than the answer: by how much?
        (301, "m5", Reason.EXPIRED),
        (301, "h1", Reason.CHANGED),
        (3601, "h1", Reason.EXPIRED),
        (0.5, "m5", Reason.UNKNOWN),  # side by side
    ],
)
def test_a_gap_against_the_time_to_live(logs: Path, gap: float, kind: str, reason: Reason) -> None:
    turn = found(logs, answer("a", 0, **{kind: 10_000}), answer("b", gap, **{kind: 10_400}))[1]
    assert (turn.reason, turn.missed, turn.gap_seconds) == (reason, 10_000, pytest.approx(gap))


def test_reading_keeps_the_time_to_live_of_what_was_written(logs: Path) -> None:
    rows = [
        answer("a", 0, h1=10_000),
        answer("b", 600, read=10_000),
        answer("c", 1200, h1=10_000),
        answer("d", 1800, m5=10_000),
        answer("e", 2400, m5=10_000),
    ]
    reasons = [turn.reason for turn in found(logs, *rows)]
    assert reasons[1:] == [Reason.NEW, Reason.CHANGED, Reason.CHANGED, Reason.EXPIRED]


def test_a_call_of_several_prompts_leaves_the_last_in_the_cache(logs: Path) -> None:
    """The top level adds up what each of them read: 200,000 of a prompt of 101,000."""
    prompts = [
        {"type": "message", **usage(input=10, read=100_000)},
        {"type": "message", **usage(input=10, read=100_000, m5=990)},
    ]
    rows = [
        answer("a", input=20, read=200_000, m5=990, iterations=prompts),
        answer("b", 30, read=100_990, m5=2000),
    ]
    history = read(logs, rows)
    (_, after) = turns(history.messages, history.compactions)
    assert (after.held, after.missed, after.reason) == (101_000, 0, Reason.NEW)


def test_a_compaction_explains_more_than_a_gap(logs: Path) -> None:
    rows = [FIRST, boundary(50), answer("b", 700, read=2000, m5=3000)]
    turn = found(logs, *rows)[1]
    assert (turn.reason, turn.missed) == (Reason.COMPACTED, 3000)
    later = found(logs, FIRST, boundary(50), answer("b", 60, m5=10_000), answer("c", 120, m5=9000))
    assert [turn.reason for turn in later[1:]] == [Reason.COMPACTED, Reason.CHANGED]
    other = boundary(50) | {"sessionId": "session-2"}
    assert found(logs, FIRST, other, answer("b", 60, m5=10_000))[1].reason is Reason.CHANGED


def test_another_model_has_another_cache(logs: Path) -> None:
    turn = found(logs, FIRST, answer("b", 60, model="claude-haiku-4-5", m5=10_000))[1]
    assert (turn.reason, turn.missed) == (Reason.SWITCHED, 10_000)


def test_short_prompts_are_never_cached(logs: Path) -> None:
    model = "claude-haiku-4-5-20251001"
    rows = [answer("a", 0, model=model, input=4095), answer("b", 9, model=model, input=4096)]
    assert [turn.reason for turn in found(logs, *rows)] == [Reason.TOO_SHORT, Reason.NEW]
    assert minimum_tokens("claude-opus-4-8") == 1024
    assert minimum_tokens("claude-opus-4-6[1m]") == 4096
    assert minimum_tokens("another") is None


def test_sub_agents_have_a_prompt_of_their_own(logs: Path) -> None:
    side = answer("s", 30, m5=8000, row={"isSidechain": True, "agentId": "x"})
    reasons = {
        t.message.id: t.reason for t in found(logs, FIRST, side, answer("b", 60, read=10_000))
    }
    assert reasons == {"a": Reason.FIRST, "s": Reason.FIRST, "b": Reason.NEW}


def test_dollars(logs: Path, prices: Layers) -> None:
    rows = [FIRST, answer("b", 360, m5=10_400), answer("c", 400, read=10_400, m5=100)]
    sums = misses(found(logs, *rows), prices).sums
    assert {reason: one.tokens for reason, one in sums.items()} == {
        Reason.NEW: 500, Reason.FIRST: 10_000, Reason.EXPIRED: 10_000
    }  # fmt: skip
    assert sums[Reason.EXPIRED].cost == pytest.approx(10_000 * 6.25e-6)
    assert sums[Reason.EXPIRED].lost == pytest.approx(10_000 * (6.25 - 0.5) * 1e-6)
    assert sums[Reason.FIRST].lost == 0


def test_what_was_not_even_written_again_was_paid_as_input(logs: Path, prices: Layers) -> None:
    sums = misses(found(logs, FIRST, answer("b", 60, input=9000, m5=2000)), prices).sums
    assert sums[Reason.CHANGED].tokens == 10_000
    assert sums[Reason.CHANGED].cost == pytest.approx(2000 * 6.25e-6 + 8000 * 5e-6)


def test_the_costliest_come_first(logs: Path, prices: Layers) -> None:
    rows = [answer(f"{i}", 100 * i, m5=1000 * (i % 13) + 1000) for i in range(40)]
    listed = misses(found(logs, *rows), prices).costliest
    lost = [one.lost or 0.0 for one in listed]
    assert len(listed) == 10
    assert lost == sorted(lost, reverse=True)
    everything = misses(found(logs, *rows), prices).sums[Reason.CHANGED].lost
    assert 0 < sum(lost) < everything


def test_no_price_is_not_no_cost(logs: Path) -> None:
    sums = misses(found(logs, FIRST, answer("b", 360, m5=10_000)), Layers()).sums
    assert sums[Reason.EXPIRED].unpriced_tokens == 10_000


COUNTS = st.integers(0, 5000)
MESSAGES = st.lists(
    st.builds(
        lambda at, session, agent, model, counts: Message(
            "", at, session, "", agent, "", 0, 1, 0, 0, 0, "", "", "",
            Part(model, *counts, output=1),
        ),
        st.floats(0, 20_000),
        st.sampled_from("st"),
        st.sampled_from(["", "x"]),
        st.sampled_from([OPUS, "claude-haiku-4-5"]),
        st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    ),
    max_size=30,
)  # fmt: skip


@given(MESSAGES)
def test_every_written_token_has_one_reason(messages: list[Message]) -> None:
    named = [one._replace(id=str(i)) for i, one in enumerate(messages)]
    found = list(turns(named, []))
    assert len(found) == sum(one.main.prompt > 0 for one in named)
    assert all(0 <= turn.missed <= turn.held for turn in found)
    told = misses(found, Layers()).sums
    written = sum(one.main.write for one in named)
    as_input = sum(
        t.message.main.prompt if t.reason is Reason.TOO_SHORT
        else max(0, t.missed - t.message.main.write)
        for t in found
    )  # fmt: skip
    assert sum(one.tokens for one in told.values()) == written + as_input
