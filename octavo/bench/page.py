"""A result as one HTML file that needs nothing from outside: tables, plots, settings."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from octavo.bench.result import Result, Table
from octavo.bench.svg import drawn

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #8884; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; max-width: 44rem; }
caption, figcaption { font-weight: bold; text-align: left; }
"""


def page(result: Result, record: Mapping[str, Any]) -> str:
    """The whole file. `record`: the JSON record, whose head says how and where it was measured."""
    title = escape(f"octavo bench {result.name}")
    head = {name: record[name] for name in ("command", "date", "octavo")}
    facts = {**head, **record["machine"], **result.settings}
    settings = Table(
        "How it was measured", ("", ""), tuple((name, str(v)) for name, v in facts.items())
    )
    parts = [f"<h1>{title}</h1>", *map(_table, result.tables)]
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    parts += [
        f"<figure><figcaption>{escape(plot.title)}</figcaption>{drawn(plot)}</figure>"
        for plot in result.plots
    ]
    body = "\n".join([*parts, _table(settings)])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>\n{rows}</table>"
