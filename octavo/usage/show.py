"""Reports as lines in a terminal. Owns what is left out where there is little room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.usage.bill import Bill
from octavo.usage.report import Report

NARROWEST_FILE = 140  # columns, where there is no terminal
WIDE, MIDDLE = 132, 84  # columns from which all kinds, or their tokens, have room
NAMES = ("input", "write 5m", "write 1h", "read", "output", "other")
# One cell of the bar stands for a share of the cost.
COLOURS = ("blue", "yellow", "red", "green", "magenta", "cyan")
MARKS = "#5hr+o"


def console() -> Any:
    """Standard output; never cut where it is no terminal."""
    from rich.console import Console

    made = Console(highlight=False)
    if not made.is_terminal:
        made = Console(highlight=False, width=max(NARROWEST_FILE, made.width))
    return made


def report_parts(report: Report, width: int) -> list[Any]:
    """What rich prints: the table, and the share of each kind."""
    parts: list[Any] = [_table(report, width)]
    if report.totals.uncached > 0:
        parts.append(_shares(report.totals, width))
    return parts


def notes_of(report: Report) -> list[str]:
    """What a reader of the figures must know."""
    notes = list(report.notes)
    bill = report.totals
    if bill.unpriced_tokens:
        models = ", ".join(sorted(bill.unpriced_models))
        notes.append(f"{bill.unpriced_tokens:,} tokens have no price and are in no sum: {models}")
    if report.skipped:
        reasons = ", ".join(f"{count:,} {name}" for name, count in sorted(report.skipped.items()))
        notes.append(f"Lines that were not counted: {reasons}")
    notes += [f"Doubtful: {count:,} × {reason}" for reason, count in report.doubts.most_common(5)]
    return notes


def _table(report: Report, width: int) -> Any:
    wide, middle = width >= WIDE, width >= MIDDLE
    columns = [report.group]
    if wide:
        columns += NAMES
    elif middle:
        columns += ["in", "write", "read", "out"]
    columns += ["hit rate", "cost", "uncached", "saved"] if middle else ["hit", "cost", "saved"]
    body = [_cells(row.key, row.bill, wide=wide, middle=middle) for row in report.rows]
    body.append(_cells("total", report.totals, wide=wide, middle=middle))
    return table(columns, body, footer=True)


def _cells(key: str, bill: Bill, *, wide: bool, middle: bool) -> list[str]:
    tokens, cells = bill.tokens, [key]
    if wide:
        cells += [
            f"{count:,}" + (f"\n{dollars(cost)}" if cost else "")
            for count, cost in zip(tokens, bill.cost, strict=True)
        ]
    elif middle:
        cells += [
            short(tokens[0]),
            short(tokens[1] + tokens[2]),
            short(tokens[3]),
            short(tokens[4]),
        ]
    cells.append("" if bill.hit_rate is None else f"{bill.hit_rate:.1%}")
    if not bill.priced:
        money = ["no price", "", ""]
    elif bill.lump is not None:
        money = [dollars(bill.total), "", ""]
    else:
        money = [dollars(one) for one in (bill.total, bill.uncached, bill.uncached - bill.total)]
    return cells + (money if middle else [money[0], money[2]])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, footer: bool = False) -> Any:
    """Numbers to the right; the first column may be folded, never cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    made = Table(box=box.SIMPLE)
    for i, column in enumerate(columns):
        made.add_column(
            column, justify="right" if i else "left", no_wrap=i > 0, overflow="fold", min_width=3
        )
    for i, row in enumerate(body):
        if footer and i == len(body) - 1:
            made.add_section()
        made.add_row(*map(Text, row))
    return made


def _shares(bill: Bill, width: int) -> Any:
    """A bar in which each kind has its share of the cost, and what the signs mean."""
    from rich.text import Text

    room = max(20, min(width - 2, 76))
    bar, legend = Text(" "), Text(" ")
    for i, cost in enumerate(bill.cost):
        share = cost / bill.total
        bar.append(MARKS[i] * round(share * room), style=COLOURS[i])
        if cost > 0:
            legend.append(f"{MARKS[i]} {NAMES[i]} {share:.0%}  ", style=COLOURS[i])
    return Text("\n").join([bar, legend])


def dollars(amount: float) -> str:
    """$12.34; below a cent more digits."""
    if amount and abs(amount) < 0.01:
        return f"${amount:.4f}"
    return f"${amount:,.2f}" if amount >= 0 else f"-${-amount:,.2f}"


def short(count: int) -> str:
    """1234567 → '1.23M'."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)
