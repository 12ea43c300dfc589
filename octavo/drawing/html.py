"""One HTML file that needs nothing from outside and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from octavo.drawing.figures import Bars, Lines, Table
from octavo.drawing.svg import drawn

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #8884; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; max-width: 44rem; }
caption, figcaption { font-weight: bold; text-align: left; }
"""


def document(title: str, parts: Sequence[str]) -> str:
    """The whole file. `title` is plain text, `parts` are HTML."""
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def html_table(table: Table) -> str:
    """One table, escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>\n{rows}</table>"


def html_figure(plot: Lines | Bars) -> str:
    """One plot under its title."""
    return f"<figure><figcaption>{escape(plot.title)}</figcaption>{drawn(plot)}</figure>"
