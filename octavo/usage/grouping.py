"""Messages by day, session, model and so on. Owns keys, calendars and 5-hour blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from octavo.core.errors import ConfigError
from octavo.pricing.api_prices import PriceData
from octavo.usage.bill import Bill
from octavo.usage.message import Message

HOUR_SECONDS = 3600
BLOCK_SECONDS = 5 * HOUR_SECONDS
BY_TIME = ("daily", "weekly", "monthly", "blocks")
GROUPS = (*BY_TIME, "session", "project", "model")


@dataclass(frozen=True, slots=True)
class Row:
    """One group. `note`: what helps to recognise it: a session's project."""

    key: str
    bill: Bill
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which messages count. Days are of the zone and both count; names match as parts."""

    since: date | None = None
    until: date | None = None
    project: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ConfigError("--since: is after --until", param="since")

    def kept(self, messages: Iterable[Message], zone: tzinfo | None) -> list[Message]:
        """`zone` None: that of this machine."""
        return [one for one in messages if self._keeps(one, zone)]

    def _keeps(self, message: Message, zone: tzinfo | None) -> bool:
        if self.project.lower() not in message.project.lower():
            return False
        if self.model.lower() not in message.model.lower():
            return False
        if self.since is None and self.until is None:
            return True
        day = at(message.time, zone).date()
        return (self.since or day) <= day <= (self.until or day)


def at(seconds: float, zone: tzinfo | None) -> datetime:
    """In the zone, or in this machine's."""
    if zone is None:
        return datetime.fromtimestamp(seconds).astimezone()
    return datetime.fromtimestamp(seconds, zone)


def zone_named(name: str) -> tzinfo | None:
    """None for "", this machine's own. Raises ConfigError for an unknown one."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if not name:
        return None
    if name == "UTC":
        return UTC  # also where there are no zone files
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"--timezone: {name[:80]!a} is not known; give one such as Europe/Berlin or UTC"
        raise ConfigError(message, param="timezone") from None


def day_named(text: str | None, name: str) -> date | None:
    """2026-01-31 or 20260131."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--{name}: {text[:80]!a} is no day; give one such as 2026-01-31", param=name
        ) from None


def grouped(
    messages: Sequence[Message], group: str, prices: PriceData, *, zone: tzinfo | None
) -> list[Row]:
    """One row for each key: by time in its order, others by what they cost."""
    if group == "model":
        return _ordered(_by_model(messages, prices), group, {})
    key = _blocks(messages, zone) if group == "blocks" else _key(group, zone)
    bills: dict[str, Bill] = {}
    notes: dict[str, str] = {}
    for message in messages:
        name = key(message)
        bill = bills.setdefault(name, Bill())
        bill.messages += 1
        for part in message.parts:
            bill.add(part, message, prices)
        if group == "session":
            notes[name] = message.project
    return _ordered(bills, group, notes)


def _ordered(bills: dict[str, Bill], group: str, notes: dict[str, str]) -> list[Row]:
    rows = [Row(key, bill, notes.get(key, "")) for key, bill in sorted(bills.items())]
    if group not in BY_TIME:
        rows.sort(key=lambda row: (-row.bill.total, -sum(row.bill.tokens)))
    return rows


def _by_model(messages: Iterable[Message], prices: PriceData) -> dict[str, Bill]:
    """Each part by the model that did it; the message counts at its own."""
    bills: dict[str, Bill] = {}
    for message in messages:
        bills.setdefault(message.model, Bill()).messages += 1
        for part in message.parts:
            bills.setdefault(part.model, Bill()).add(part, message, prices)
    return bills


def total(rows: Iterable[Row]) -> Bill:
    """The sum of all rows."""
    bill = Bill()
    for row in rows:
        bill.merge(row.bill)
    return bill


def _key(group: str, zone: tzinfo | None) -> Callable[[Message], str]:
    def day(message: Message) -> date:
        return at(message.time, zone).date()

    def week(message: Message) -> str:
        """Its Monday."""
        found = day(message)
        return (found - timedelta(days=found.weekday())).isoformat()

    return {
        "daily": lambda message: day(message).isoformat(),
        "weekly": week,
        "monthly": lambda message: f"{day(message):%Y-%m}",
        "session": lambda message: message.session,
        "project": lambda message: message.project,
    }[group]


def _blocks(messages: Iterable[Message], zone: tzinfo | None) -> Callable[[Message], str]:
    """A block begins with the hour of its first message and holds 5 hours."""
    starts: list[float] = []
    begin_of: dict[str, float] = {}
    for message in sorted(messages, key=lambda one: one.time):
        if not starts or message.time >= starts[-1] + BLOCK_SECONDS:
            starts.append(message.time // HOUR_SECONDS * HOUR_SECONDS)
        begin_of[message.id] = starts[-1]
    return lambda message: at(begin_of[message.id], zone).strftime("%Y-%m-%d %H:%M")
