"""`octavo usage`: where the tokens went and what they cost. Owns what can be asked for."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.usage_options import Asked, with_usage_options
from octavo.core.errors import ConfigError


class View(StrEnum):
    """What is asked for."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    SESSION = "session"
    PROJECT = "project"
    MODEL = "model"
    BLOCKS = "blocks"
    KEY = "key"
    MISSES = "misses"
    WHATIF = "whatif"
    EXPORT = "export"


ANSWERS = (View.MISSES, View.WHATIF, View.EXPORT)  # those that are no table of a grouping


@with_usage_options
def usage(
    asked: Asked,
    view: Annotated[
        View,
        typer.Argument(
            help="a grouping (blocks: of 5 hours; key: with --server), why the cache missed, what "
            "other settings would have cost, or an export"
        ),
    ] = View.DAILY,
    file: Annotated[
        Path | None,
        typer.Argument(help="of an export: a .jsonl file, or a folder for a file a session"),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write a page with plots there")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="show it anew every 5 seconds, until Ctrl-C")
    ] = False,
) -> None:
    """Show where the tokens of a coding agent went, and what the API charges for them."""
    from octavo.cli.usage_output import export, show, show_ledger, watched, write_page

    asked.check()
    if (view is View.EXPORT) != (file is not None):
        raise ConfigError("usage: an export needs a FILE, and nothing else has one", param="file")
    if view is View.KEY and asked.server is None:
        raise ConfigError("usage: logs know no keys; ask a ledger with --server", param="view")
    if html is not None and (view in ANSWERS or asked.server is not None or json_output):
        raise ConfigError("--html: a page shows a grouping of logs, without --json", param="html")
    if json_output and view is View.EXPORT:
        raise ConfigError("--json: an export is JSON in its FILE", param="json")
    if watch and (json_output or file or html or not sys.stdout.isatty()):
        raise ConfigError("--watch: needs a terminal, and shows tables only", param="watch")
    if asked.server is not None:
        server, wanted = asked.server, asked.filter()
        watched(lambda: show_ledger(server, view.value, wanted, as_json=json_output), watch=watch)
        return
    source = asked.source()
    if file is not None:
        export(source, file)
    elif html is not None:
        write_page(source, view.value, html)
    else:
        watched(lambda: show(source, view.value, as_json=json_output), watch=watch)
