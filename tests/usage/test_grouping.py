"""Days, weeks, blocks, zones and filters."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from octavo.core.errors import ConfigError
from octavo.pricing.api_prices import Layers
from octavo.usage.grouping import Filter, day_named, grouped, zone_named
from tests.usage.conftest import answer, read

HOUR = 3600.0  # the first message is of Monday, 2026-11-02, 9:00 UTC
DAY = 24 * HOUR
NO_PRICES = Layers()


def keys(logs: Path, group: str, *times: float, zone: str = "UTC") -> list[tuple[str, int]]:
    history = read(logs, [answer(f"{i}", at) for i, at in enumerate(times)])
    rows = grouped(history.messages, group, NO_PRICES, zone=ZoneInfo(zone))
    return [(row.key, row.bill.messages) for row in rows]


def test_days_are_of_the_zone(logs: Path) -> None:
    times = (0, 14.9 * HOUR, 15 * HOUR)
    assert keys(logs, "daily", *times) == [("2026-11-02", 2), ("2026-11-03", 1)]
    assert keys(logs, "daily", *times, zone="Asia/Tokyo") == [("2026-11-02", 1), ("2026-11-03", 2)]


def test_a_day_of_25_hours_is_one_day(logs: Path) -> None:
    # The clocks of Berlin go back on 2026-10-25: 00:30 and 23:30 are 24 hours apart.
    early, late = -8 * DAY - 10.5 * HOUR, -8 * DAY + 13.5 * HOUR
    assert keys(logs, "daily", early, late, zone="Europe/Berlin") == [("2026-10-25", 2)]


def test_weeks_begin_on_monday(logs: Path) -> None:
    found = keys(logs, "weekly", -1 * DAY, 0, 6 * DAY, 7 * DAY)
    assert found == [("2026-10-26", 1), ("2026-11-02", 2), ("2026-11-09", 1)]


def test_months(logs: Path) -> None:
    assert keys(logs, "monthly", 0, -3 * DAY) == [("2026-10", 1), ("2026-11", 1)]


def test_blocks_begin_with_the_hour_and_hold_five(logs: Path) -> None:
    found = keys(logs, "blocks", 0.6 * HOUR, 4.9 * HOUR, 5 * HOUR, 9 * HOUR, 30 * HOUR)
    assert found == [("2026-11-02 09:00", 2), ("2026-11-02 14:00", 2), ("2026-11-03 15:00", 1)]


def test_sessions_come_by_cost_with_their_project(logs: Path, prices: Layers) -> None:
    history = read(
        logs,
        [
            answer("a", 0, output=10, row={"sessionId": "small", "cwd": "/x"}),
            answer("b", 1, output=900, row={"sessionId": "large", "cwd": "/y"}),
        ],
    )
    rows = grouped(history.messages, "session", prices, zone=UTC)
    assert [(row.key, row.note) for row in rows] == [("large", "/y"), ("small", "/x")]


def test_filters(logs: Path) -> None:
    history = read(
        logs,
        [
            answer("a", 0),
            answer("b", DAY, model="claude-haiku-4-5"),
            answer("c", 2 * DAY, row={"cwd": "/home/user/Other"}),
        ],
    )

    def kept(**given: str) -> str:
        wanted = Filter(
            since=day_named(given.get("since"), "since"),
            until=day_named(given.get("until"), "until"),
            project=given.get("project", ""),
            model=given.get("model", ""),
        )
        return "".join(one.id for one in wanted.kept(history.messages, UTC))

    assert kept() == "abc"
    assert kept(since="2026-11-03", until="20261103") == "b"
    assert kept(since="2026-11-03") == "bc"
    assert kept(until="2026-11-03") == "ab"
    assert (kept(project="other"), kept(model="HAIKU"), kept(model="none")) == ("c", "b", "")


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../../etc/passwd", "x" * 5000, "\0"])
def test_unknown_zones_and_days_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="timezone"):
        zone_named(name)
    with pytest.raises(ConfigError, match="since"):
        day_named(name, "since")
