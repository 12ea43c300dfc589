"""`octavo plan`: what a model's KV cache costs on given hardware. Owns the flags; computes nothing.

Everything behind the flags is imported when the command runs: help must come at once.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.plan_options import Demands, with_plan_options
from octavo.core.errors import ConfigError

if TYPE_CHECKING:
    from octavo.plan.plan import Plan

COMPARE = "compare"
MAX_COMPARED = 12
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL | compare MODEL MODEL …",
        help="card, config.json or its folder, .gguf file or hub id",
    ),
]


@with_plan_options
def plan(
    demands: Demands,
    models: Models = None,
    mtp: Annotated[bool, typer.Option("--mtp", help="layers that guess ahead run too")] = False,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="a running Octavo to put beside the plan")
    ] = None,
    cards: Annotated[bool, typer.Option("--cards", help="list the built-in cards")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="every formula with its numbers")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a page with plots there")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write each plot there as a file")
    ] = None,
) -> None:
    """What a model's KV cache costs: bytes, requests, milliseconds, money."""
    if cards:
        return list_cards()
    if server is not None:
        if demands.given or mtp or explain or html or svg:
            raise ConfigError(
                "--server: shows a server as it runs; only a MODEL and --json go with it",
                param="server",
            )
        return show_live(server, models, as_json=as_json)
    names = _names(models)
    if explain and len(names) > 1:
        raise ConfigError("--explain: formulas are of one MODEL, not of several", param="explain")
    ask = demands.ask()
    from octavo.cli.plan_model import open_model
    from octavo.plan.plan import planned

    plans = [planned(open_model(name, mtp=mtp), ask) for name in names]
    if svg is not None:
        write_plots(plans, svg)
    if len(plans) == 1:
        show(plans[0], explain=explain, as_json=as_json, html=html)
    else:
        show_comparison(plans, as_json=as_json, html=html)


def _names(models: list[str] | None) -> list[str]:
    names = models or []
    if names[:1] == [COMPARE]:
        names = names[1:]
        if not 2 <= len(names) <= MAX_COMPARED:
            raise ConfigError(f"compare needs 2 to {MAX_COMPARED} models; there are {len(names)}")
    elif len(names) != 1:
        raise ConfigError(
            "give one MODEL, or compare and several; `octavo plan --cards` lists the built-in ones"
        )
    return names


def list_cards() -> None:
    """Names and bytes a token, one to a line."""
    from octavo.plan.cards import card_names, planned_card
    from octavo.plan.formats import kv_format

    for name in card_names():
        token_bytes = planned_card(name).geometry.token_bytes(kv_format("bfloat16"))
        print(f"{name:24} {token_bytes:>9,} B a token in bfloat16")


def show(plan: Plan, *, explain: bool, as_json: bool, html: Path | None) -> None:
    """One plan in the form that was asked for."""
    from octavo.plan.explain import explained
    from octavo.plan.page import page
    from octavo.plan.record import as_record
    from octavo.plan.tables import tables

    if html is not None:
        write(html, page(plan, command()))
    if as_json:
        record = as_record(plan)
        print(json.dumps(record | {"explain": explained(plan)} if explain else record))
        return
    from octavo.drawing.terminal import show_tables

    show_tables(tables(plan), plan.remarks())
    if explain:
        print("\n".join(explained(plan)))


def show_comparison(plans: list[Plan], *, as_json: bool, html: Path | None) -> None:
    """Several plans side by side."""
    from octavo.plan.compare import comparison
    from octavo.plan.page import comparison_page
    from octavo.plan.record import as_record

    if html is not None:
        write(html, comparison_page(plans, command()))
    if as_json:
        print(json.dumps({"plans": [as_record(plan) for plan in plans]}))
        return
    from octavo.drawing.terminal import show_tables

    show_tables([comparison(plans)])


def show_live(server: str, models: list[str] | None, *, as_json: bool) -> None:
    """Prediction beside observation; without a model, of the one that the server names."""
    from octavo.cli.plan_model import open_model
    from octavo.cli.plan_server import observe
    from octavo.plan.live import beside, live_record

    if len(models or []) > 1:
        raise ConfigError("give at most one MODEL beside --server", param="server")
    seen = observe(server)
    model = open_model(models[0] if models else seen.model)
    if as_json:
        print(json.dumps(live_record(model, seen)))
        return
    from octavo.drawing.terminal import show_tables

    show_tables([beside(model, seen)])


def write_plots(plans: list[Plan], folder: Path) -> None:
    """Each plot as <name>.svg in `folder`, which must be there."""
    from octavo.drawing.svg import drawn
    from octavo.plan.compare import comparison_plots
    from octavo.plan.plots import plots

    found = plots(plans[0]) if len(plans) == 1 else comparison_plots(plans)
    for name, plot in found.items():
        write(folder / f"{name}.svg", drawn(plot) + "\n")


def command() -> str:
    """The command line that is running."""
    return shlex.join(["octavo", *sys.argv[1:]])


def write(path: Path, text: str) -> None:
    """Raises ConfigError where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{str(path)!a} cannot be written: {error.strerror}") from None
