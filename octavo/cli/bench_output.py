"""A benchmark's result on the terminal and as files. Owns the JSON record's head."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import octavo
from octavo.bench.environment import machine
from octavo.bench.page import page
from octavo.bench.result import Result, Table
from octavo.core.errors import ConfigError

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="write figures and settings there")
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="write a page with tables and plots there"),
]
NARROWEST = 120  # columns; where there is no terminal a table must not be cut to 80


def check_files(*paths: Path | None) -> None:
    """Refuse a file that could not be written, before anything is measured."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise ConfigError(f"{str(path)!a} cannot be written: no such folder, or it is one")


def show(result: Result, *, json_file: Path | None, html_file: Path | None) -> None:
    """Print the tables and write the files that were asked for."""
    _print(result)
    record = as_record(result)
    if json_file is not None:
        _write(json_file, json.dumps(record, indent=2) + "\n")
    if html_file is not None:
        _write(html_file, page(result, record))


def as_record(result: Result) -> dict[str, Any]:
    """Everything but the tables and plots, with the command and the machine that made it."""
    return {
        "benchmark": f"octavo bench {result.name}",
        "command": shlex.join(["octavo", *sys.argv[1:]]),
        "octavo": octavo.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "settings": dict(result.settings),
        "figures": dict(result.figures),
        "notes": list(result.notes),
    }


def _print(result: Result) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(NARROWEST, console.width))
    for table in result.tables:
        console.print(f"\n{table.title}", markup=False)
        console.print(_rich(table))
    for note in result.notes:
        console.print(note, markup=False)


def _rich(table: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=box.SIMPLE)
    for i, column in enumerate(table.columns):
        made.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{str(path)!a} cannot be written: {error.strerror}") from None
