"""The report as one HTML file that needs nothing from outside and runs nothing.

Owns the drawings: dollars by day stacked by kind, the hit rate, the hours of the week.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from html import escape

from octavo.drawing.figures import Table
from octavo.drawing.html import document, html_table
from octavo.pricing.api_prices import PriceData
from octavo.usage.bill import Bill
from octavo.usage.grouping import Row, at, grouped
from octavo.usage.message import Message
from octavo.usage.report import Report
from octavo.usage.show import NAMES, dollars, notes_of, short

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 240, 70, 10, 24
COLOURS = ("#1f6feb", "#bf8700", "#cf222e", "#1a7f37", "#8250df", "#57606a")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
CELL_WIDTH, CELL_HEIGHT = 34, 22
LISTED = 15
MOST_DAYS = 400


def page(
    report: Report, messages: Sequence[Message], prices: PriceData, *, zone: tzinfo | None
) -> str:
    """The whole file. `messages` are those of the report."""
    days = grouped(messages, "daily", prices, zone=zone)[-MOST_DAYS:]
    parts = [
        f"<p>{escape(_summary(report.totals))}</p>",
        "<h2>Dollars a day</h2>",
        _legend(report.totals),
        _stacked(days),
        "<h2>Hit rate</h2>",
        _hit_rates(days),
        "<h2>Dollars by hour of the week</h2>",
        _heat(messages, prices, zone),
    ]
    for title, group in (("Sessions", "session"), ("Projects", "project"), ("Models", "model")):
        rows = grouped(messages, group, prices, zone=zone)[:LISTED]
        columns = (title, "answers", "hit rate", "cost", "saved")
        parts.append(html_table(Table("", columns, tuple(map(_cells, rows)))))
    parts += [f"<p>{escape(note)}</p>" for note in notes_of(report)]
    return document("Where the tokens went", parts)


def _summary(bill: Bill) -> str:
    rate = "" if bill.hit_rate is None else f", {bill.hit_rate:.1%} of the prompts from the cache"
    cost = (
        f"{dollars(bill.total)}, uncached {dollars(bill.uncached)}" if bill.priced else "no price"
    )
    return f"{bill.messages:,} answers, {short(sum(bill.tokens[:5]))} tokens{rate}: {cost}."


def _legend(bill: Bill) -> str:
    shown = (i for i in range(len(NAMES)) if bill.cost[i])
    return "<p>" + " ".join(_swatch(i, bill) for i in shown) + "</p>"


def _swatch(i: int, bill: Bill) -> str:
    share = bill.cost[i] / bill.total
    return f'<span style="color:{COLOURS[i]}">■</span> {NAMES[i]} {share:.0%}'


def _stacked(days: Sequence[Row]) -> str:
    """A column for each day with costs; days without are left out."""
    high = max((row.bill.total for row in days), default=0.0)
    if not high:
        return "<p>No prices.</p>"
    step = (WIDTH - LEFT) / len(days)
    room = HEIGHT - TOP - BOTTOM
    parts = _scale([(share, dollars(high * share)) for share in (0.0, 0.5, 1.0)])
    for x, row in enumerate(days):
        bottom = float(HEIGHT - BOTTOM)
        for i, cost in enumerate(row.bill.cost):
            height = room * cost / high
            bottom -= height
            if height > 0:
                title = f"{row.key}: {NAMES[i]} {dollars(cost)}"
                parts.append(
                    _box(LEFT + x * step, bottom, step * 0.8, height, COLOURS[i], title=title)
                )
    return _svg(HEIGHT, [*parts, *_ends(days)])


def _hit_rates(days: Sequence[Row]) -> str:
    step = (WIDTH - LEFT) / max(1, len(days))
    points = [
        (LEFT + (x + 0.4) * step, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * row.bill.hit_rate)
        for x, row in enumerate(days)
        if row.bill.hit_rate is not None
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{COLOURS[3]}"/>' for x, y in points]
    line = f'<polyline points="{path}" fill="none" stroke="{COLOURS[3]}" stroke-width="1.5"/>'
    scale = _scale([(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)])
    return _svg(HEIGHT, [*scale, line, *dots, *_ends(days)])


def _heat(messages: Iterable[Message], prices: PriceData, zone: tzinfo | None) -> str:
    bills: dict[tuple[int, int], Bill] = {}
    for message in messages:
        when = at(message.time, zone)
        bill = bills.setdefault((when.weekday(), when.hour), Bill())
        for part in message.parts:
            bill.add(part, message, prices)
    high = max((bill.total for bill in bills.values()), default=0.0) or 1.0
    parts = [_text(LEFT - 8, 16 + (d + 1) * CELL_HEIGHT, name) for d, name in enumerate(DAYS)]
    for hour in range(24):
        x = LEFT + hour * CELL_WIDTH
        parts.append(_text(x + CELL_WIDTH / 2, 14, str(hour), anchor="middle"))
        for day, name in enumerate(DAYS):
            cost = bills[day, hour].total if (day, hour) in bills else 0.0
            title = f"{name} {hour}:00: {dollars(cost)}"
            shade = f"{COLOURS[0]}{round(20 + 235 * cost / high):02x}"
            parts.append(
                _box(x, 22 + day * CELL_HEIGHT, CELL_WIDTH - 2, CELL_HEIGHT - 2, shade, title=title)
            )
    return _svg(28 + 7 * CELL_HEIGHT, parts)


def _cells(row: Row) -> tuple[str, ...]:
    bill = row.bill
    rate = "" if bill.hit_rate is None else f"{bill.hit_rate:.1%}"
    money = [dollars(bill.total), dollars(bill.uncached - bill.total)]
    name = f"{row.key} ({row.note})" if row.note else row.key
    return (name, f"{bill.messages:,}", rate, *(money if bill.priced else ("no price", "")))


def _scale(marks: Iterable[tuple[float, str]]) -> list[str]:
    """Lines across at shares of the height, and what they stand for."""
    parts = []
    for share, label in marks:
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}" stroke="#8886"/>')
        parts.append(_text(LEFT - 8, y + 4, label))
    return parts


def _ends(days: Sequence[Row]) -> list[str]:
    """The first and the last day below the axis."""
    if not days:
        return []
    return [
        _text(LEFT, HEIGHT - 6, days[0].key, anchor="start"),
        _text(WIDTH, HEIGHT - 6, days[-1].key),
    ]


def _svg(height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" role="img">{body}</svg>'
    )


def _box(x: float, y: float, width: float, height: float, fill: str, *, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "end") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
