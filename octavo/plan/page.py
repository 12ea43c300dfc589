"""A plan as one HTML page: tables, plots and every formula with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from octavo.drawing.html import document, html_figure, html_table
from octavo.plan.compare import comparison, comparison_plots
from octavo.plan.explain import explained
from octavo.plan.plan import Plan
from octavo.plan.plots import plots
from octavo.plan.tables import tables


def page(plan: Plan, command: str) -> str:
    """The whole file. `command` made it."""
    formulas = "".join(f"<li>{escape(line)}</li>" for line in explained(plan))
    return document(
        f"What {plan.model.name} costs on {plan.tp} × {plan.gpu.name}",
        [
            f"<p><code>{escape(command)}</code></p>",
            *(f"<p>{escape(line)}</p>" for line in plan.remarks()),
            *map(html_figure, plots(plan).values()),
            *map(html_table, tables(plan)),
            f"<h2>Every formula</h2><ul>{formulas}</ul>",
        ],
    )


def comparison_page(plans: Sequence[Plan], command: str) -> str:
    """Several models on the same hardware."""
    return document(
        "What caches cost, compared",
        [
            f"<p><code>{escape(command)}</code></p>",
            html_table(comparison(plans)),
            *map(html_figure, comparison_plots(plans).values()),
        ],
    )
