"""`octavo usage`: where the tokens went and what they cost. Owns the command's flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from octavo.usage.ask import Source

PANEL = "What is read"


class View(StrEnum):
    """What is asked for."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    SESSION = "session"
    PROJECT = "project"
    MODEL = "model"
    BLOCKS = "blocks"


def usage(
    view: Annotated[View, typer.Argument(help="how the figures are grouped")] = View.DAILY,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="first day that counts")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="last day that counts")] = None,
    timezone: Annotated[
        str, typer.Option(help="zone of the days, such as UTC; default: this machine's")
    ] = "",
    project: Annotated[str, typer.Option(help="only projects whose folder contains this")] = "",
    model: Annotated[str, typer.Option(help="only models whose name contains this")] = "",
    logs: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="read these logs; default: the coding agent's own"),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="own prices, or LiteLLM's file; asked before others"),
    ] = None,
    index: Annotated[
        bool, typer.Option(help="keep what was counted, so that only what is new is read")
    ] = True,
    json_output: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show where the tokens of a coding agent went, and what the API charges for them."""
    from octavo.usage.ask import Source
    from octavo.usage.grouping import Filter, day_named, zone_named
    from octavo.usage.places import data_folder

    source = Source.of(
        price_file=prices,
        logs=tuple(logs or ()),
        index=data_folder() if index else None,
        wanted=Filter(
            since=day_named(since, "since"),
            until=day_named(until, "until"),
            project=project,
            model=model,
        ),
        zone=zone_named(timezone),
    )
    show_table(source, view.value, as_json=json_output)


def show_table(source: Source, group: str, *, as_json: bool) -> None:
    """The table of one grouping."""
    from octavo.usage.ask import report
    from octavo.usage.show import console, notes_of, report_parts

    found = report(source, group, progress=progress_bar)
    if as_json:
        print_json(found.as_json())
        return
    out = console()
    for part in report_parts(found, out.width):
        out.print(part)
    for note in notes_of(found):
        print(note)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def progress_bar(total_bytes: int) -> Callable[[int], None]:
    """On standard error where it is a terminal; it goes when everything is read."""
    import sys

    if not sys.stderr.isatty():
        return lambda done: None
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("Reading logs"),
        BarColumn(),
        DownloadColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=total_bytes)
    bar.start()

    def advance(n_bytes: int) -> None:
        bar.advance(task, n_bytes)
        if bar.finished:
            bar.stop()

    return advance
