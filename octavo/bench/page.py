"""A result as one HTML file: tables, plots, settings."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from octavo.bench.result import Result
from octavo.drawing.figures import Table
from octavo.drawing.html import document, html_figure, html_table


def page(result: Result, record: Mapping[str, Any]) -> str:
    """The whole file. `record`: the JSON record, whose head says how and where it was measured."""
    head = {name: record[name] for name in ("command", "date", "octavo")}
    facts = {**head, **record["machine"], **result.settings}
    settings = Table(
        "How it was measured", ("", ""), tuple((name, str(v)) for name, v in facts.items())
    )
    notes = [f"<p>{escape(note)}</p>" for note in result.notes]
    parts = [*map(html_table, result.tables), *notes, *map(html_figure, result.plots)]
    return document(f"octavo bench {result.name}", [*parts, html_table(settings)])
