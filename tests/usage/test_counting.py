"""Public bug reports about other tools that read these logs, each with its right value."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.pricing.api_prices import Layers
from octavo.usage.history import History, collect
from octavo.usage.report import Report
from tests.usage.conftest import OPUS, answer, read, source_of, usage, write


def report(history: History, logs: Path, prices: Layers, group: str = "daily") -> Report:
    return source_of(logs, prices).report(group, history)


def test_the_first_row_of_a_message_is_not_the_last_word(logs: Path) -> None:
    """ccusage #901, claude-code #93620: a row per content block; early ones are placeholders."""
    rows = [answer("a", i, output=n) for i, n in enumerate((1, 1, 640))]
    (found,) = read(logs, rows).messages
    assert found.main.output == 640


def test_gateways_leave_out_the_request_id(logs: Path) -> None:
    """ccusage #985: keyed on two ids, 44.9M tokens were shown for 25.0M."""
    rows = [answer("a", i, read=1000, row={"requestId": None}) for i in range(3)]
    found = read(logs, [*rows, answer("a", 3, read=1000, row={"requestId": "other"})])
    assert [one.main.read for one in found.messages] == [1000]


def test_one_id_in_many_sessions_counts_once(logs: Path, prices: Layers) -> None:
    """ccusage #1762: 540 of 3,292 ids were in more than one session, $60.87 for $30.58."""
    for session in ("one", "two"):
        rows = [answer(f"{i}", i, output=1000, row={"sessionId": session}) for i in range(50)]
        write(logs / "p" / f"{session}.jsonl", rows)
    found = report(read(logs), logs, prices)
    assert (found.totals.messages, found.totals.total) == (50, pytest.approx(50 * 0.025))


def test_side_chains_replay_the_main_one(logs: Path) -> None:
    """ccusage #913."""
    side = answer("a", 9, output=500, row={"isSidechain": True, "agentId": "x"})
    write(logs / "p" / "session-1" / "subagents" / "agent-x.jsonl", [side])
    (found,) = read(logs, [answer("a", 0, output=400)]).messages
    assert (found.agent, found.main.output) == ("", 400)


def test_an_hours_writes_cost_twice_the_input(logs: Path, prices: Layers) -> None:
    """ccusage #899, ccstats #86, claude-hud #758: 2M at Sonnet's $3 were shown as $7.50."""
    rows = [answer("a", model="claude-sonnet-4", h1=2_000_000, output=0)]
    assert report(read(logs, rows), logs, prices).totals.total == pytest.approx(12.0)


def test_writes_of_both_kinds(logs: Path, prices: Layers) -> None:
    """pi #5738: 600k for 5 minutes and 400k for an hour on Opus 4.8 were shown as $6.25."""
    bill = report(read(logs, [answer("a", m5=600_000, h1=400_000, output=0)]), logs, prices).totals
    assert bill.cost[1:3] == [pytest.approx(3.75), pytest.approx(4.0)]
    assert bill.total == pytest.approx(7.75)


def test_a_sum_that_is_not_the_sum_of_its_parts(logs: Path, prices: Layers) -> None:
    """claude-usage #162, relay #1081: the parts count, 78 % of them for an hour."""
    counts = usage(m5=47_745_500, h1=168_726_465) | {"cache_creation_input_tokens": 216_447_883}
    bill = report(read(logs, [answer("a", message={"usage": counts})]), logs, prices).totals
    assert bill.tokens[1:3] == [47_745_500, 168_726_465]


def test_placeholders_cannot_be_repaired_and_are_told(logs: Path, prices: Layers) -> None:
    """claude-code #22686, #22671, #25941, #27361, #21971, #28197; ccusage #866."""
    row = answer("a", output=1, message={"stop_reason": None}, row={"version": "2.0.1"})
    found = report(read(logs, [row, answer("b", output=300)]), logs, prices)
    assert dict(found.doubts) == {"placeholder output, version 2.0.1": 1}


def test_files_lie_at_any_depth(logs: Path) -> None:
    """cc-switch #2820, codeburn #470 and #471: about 16 % lay deeper than two levels."""
    session = logs / "p" / "session-1"
    write(session / "subagents" / "agent-x.jsonl", [answer("a", 1)])
    write(session / "subagents" / "workflows" / "run-1" / "agent-y.jsonl", [answer("b", 2)])
    found = read(logs, [answer("c", 3)])
    assert [(one.id, one.agent) for one in found.messages] == [
        ("a", "agent-x"), ("b", "agent-y"), ("c", "")
    ]  # fmt: skip


def test_advisors_are_priced_as_themselves(logs: Path, prices: Layers) -> None:
    """codeburn #659, claude-code #84738 and #53065."""
    advisor = {"type": "advisor_message", "model": "claude-haiku-4-5", **usage(input=10**6)}
    history = read(logs, [answer("a", input=10**6, output=0, iterations=[advisor])])
    rows = {row.key: row.bill for row in report(history, logs, prices, "model").rows}
    assert rows[OPUS].total == pytest.approx(5.0)
    assert rows["claude-haiku-4-5"].total == pytest.approx(1.0 + 100 * 5e-6)
    assert rows["claude-haiku-4-5"].messages == 0


def test_blocks_of_one_answer_are_not_answers(logs: Path, prices: Layers) -> None:
    """ccstatusline #549: 1.84 to 2.02 times too much."""
    rows = [answer(f"{i // 2}", i, output=100, read=10) for i in range(20)]
    found = report(read(logs, rows), logs, prices).totals
    assert (found.messages, found.tokens[4], found.tokens[3]) == (10, 1000, 100)


def test_forks_keep_the_first_sessions_rows(logs: Path, prices: Layers) -> None:
    """langfuse #33 and #81: copies in the new file were billed again, to the new session."""
    rows = [answer("a", 0), answer("b", 1)]
    write(logs / "p" / "session-1.jsonl", rows)
    fork = [*rows, answer("c", 2, row={"sessionId": "session-2"})]
    write(logs / "p" / "session-2.jsonl", fork)
    found = report(read(logs), logs, prices, "session")
    assert {row.key: row.bill.messages for row in found.rows} == {"session-1": 2, "session-2": 1}


def test_totals_do_not_shrink_when_logs_are_deleted(logs: Path, tmp_path: Path) -> None:
    """ccusage #609, #721, #805, #1336: logs go after 30 days."""
    old = write(logs / "p" / "session-1.jsonl", [answer("a", output=5)])
    index = tmp_path / "index"
    before = collect([logs], index)
    old.unlink()
    assert collect([logs], index).messages == before.messages
    # And what comes back in another file still counts once.
    write(logs / "p" / "session-9.jsonl", [answer("a", output=5)])
    assert collect([logs], index).messages == before.messages


def test_web_searches_have_a_fee(logs: Path, prices: Layers) -> None:
    """agentsview #1314: one cent each."""
    row = answer("a", output=0, server_tool_use={"web_search_requests": 3})
    bill = report(read(logs, [row]), logs, prices).totals
    assert (bill.tokens[5], bill.total) == (3, pytest.approx(0.03))


def test_tiers_are_of_one_request_not_of_a_day(logs: Path, prices: Layers) -> None:
    """Two prompts of 150k stay below 200k; one of 300k is above with all its tokens."""
    model = "claude-sonnet-4-5"
    rows = [answer(f"{i}", i, model=model, input=150_000, output=0) for i in range(2)]
    assert report(read(logs, rows), logs, prices).totals.total == pytest.approx(0.9)
    rows = [answer("x", 0, model=model, input=1000, read=299_000, output=1000)]
    long = (1000 * 6 + 299_000 * 0.6 + 1000 * 22.5) / 1e6
    assert report(read(logs, rows), logs, prices).totals.total == pytest.approx(long)


def test_what_has_no_price_is_listed_not_free(logs: Path, prices: Layers) -> None:
    rows = [answer("a", model="new-model", input=70, output=30), answer("b", input=10**6, output=0)]
    found = report(read(logs, rows), logs, prices, "model").as_json()
    cheap = {row["key"]: row for row in found["rows"]}["new-model"]
    assert (cheap["unpriced_tokens"], cheap["cost"]["total"]) == (100, None)
    assert found["totals"]["cost"]["total"] == 5.0
    assert found["totals"]["unpriced_models"] == ["new-model"]


def test_the_same_traffic_without_a_cache(logs: Path, prices: Layers) -> None:
    row = answer("a", input=1000, m5=2000, read=97_000, output=100)
    found = report(read(logs, [row]), logs, prices).as_json()["totals"]
    assert found["hit_rate"] == 0.97
    assert found["cost"]["uncached"] == pytest.approx((100_000 * 5 + 100 * 25) / 1e6)
    paid = (1000 * 5 + 2000 * 6.25 + 97_000 * 0.5 + 100 * 25) / 1e6
    assert found["cost"]["total"] == pytest.approx(paid)
    assert found["cost"]["saved"] == pytest.approx(found["cost"]["uncached"] - paid)


ROWS = st.builds(
    lambda key, at, output, side, read, session: answer(
        f"{key}",
        at,
        output=output,
        read=read,
        row={"isSidechain": side, "sessionId": f"session-{session}"},
    ),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 2),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_neither_order_nor_copies_change_what_counts(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], seed: int
) -> None:
    shuffled = random.Random(seed)
    first, second = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("logs")
    write(first / "a.jsonl", rows)
    again = [*rows, *shuffled.choices(rows, k=len(rows))]
    shuffled.shuffle(again)
    for i, row in enumerate(again):
        with (second / f"{shuffled.randrange(3)}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + ("\n\n" if i % 2 else "\n"))
    assert collect([second], None).messages == collect([first], None).messages
    # The same files one after the other, through an index.
    index = tmp_path_factory.mktemp("index")
    third = tmp_path_factory.mktemp("logs")
    for path in sorted(second.iterdir()):
        path.rename(third / path.name)
        found = collect([third], index)
    assert found.messages == collect([first], None).messages
