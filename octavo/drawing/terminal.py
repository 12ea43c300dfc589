"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.drawing.figures import Table

NARROWEST = 160  # columns; where there is no terminal a table must not be cut to 80


def show_tables(tables: Iterable[Table], notes: Iterable[str] = ()) -> None:
    """Print each under its title, then the notes."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(NARROWEST, console.width))
    for table in tables:
        console.print(f"\n{table.title}", markup=False)
        console.print(_rich(table))
    for note in notes:
        console.print(note, markup=False)


def _rich(table: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=box.SIMPLE)
    last = len(table.columns) - 1
    for i, column in enumerate(table.columns):
        # Where a terminal is too narrow the last column is folded: nothing is cut.
        made.add_column(
            column,
            justify="right" if i else "left",
            no_wrap=i < last,
            min_width=min(len(column), 8) if i == last else None,
            overflow="fold",
        )
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made
