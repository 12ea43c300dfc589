"""What `octavo usage` prints and writes. Owns JSON, the progress bar and showing it anew."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.core.errors import ConfigError

if TYPE_CHECKING:
    from octavo.usage.ask import Source
    from octavo.usage.grouping import Filter
    from octavo.usage.report import Report

WATCH_SECONDS = 5.0
CLEAR = "\x1b[2J\x1b[H"


def show(source: Source, view: str, *, as_json: bool) -> None:
    """A table of a grouping, the misses, or what-if."""
    from octavo.usage.misses import misses
    from octavo.usage.report import price_note
    from octavo.usage.show_answers import MISSES_NOTE, misses_parts, whatif_notes, whatif_parts
    from octavo.usage.whatif import whatif

    history = source.history(progress_bar)
    prices = source.prices
    told = {"prices": {"date": prices.date, "source": prices.source}}
    if view == "misses":
        found = misses(source.turns(history), prices)
        if as_json:
            print_json({**found.as_json(source.zone), **told})
            return
        _print(misses_parts(found, source.zone), [MISSES_NOTE, price_note(prices)])
    elif view == "whatif":
        settings = whatif(source.turns(history), prices)
        if as_json:
            print_json({**settings.as_json(), **told})
            return
        _print(whatif_parts(settings), [*whatif_notes(settings), price_note(prices)])
    else:
        show_report(source.report(view, history), as_json=as_json)


def show_ledger(url: str, view: str, wanted: Filter, *, as_json: bool) -> None:
    """The same table from a server."""
    from octavo.cli.server_key import key_headers
    from octavo.usage.ledger import ledger_report

    report = ledger_report(url, view, wanted, headers=key_headers())
    show_report(report, as_json=as_json)


def show_report(report: Report, *, as_json: bool) -> None:
    """One table."""
    from octavo.usage.show import console, notes_of, report_parts

    if as_json:
        print_json(report.as_json())
    else:
        _print(report_parts(report, console().width), notes_of(report))


def write_page(source: Source, view: str, path: Path) -> None:
    """The report as HTML."""
    from octavo.usage.page import page

    history = source.history(progress_bar)
    report, messages = source.report(view, history), source.kept(history)
    try:
        path.write_text(page(report, messages, source.prices, zone=source.zone), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--html: {str(path)!a} cannot be written: {error.strerror}", param="html"
        ) from None


def export(source: Source, path: Path) -> None:
    """Write the sessions as traces and say how many."""
    from octavo.usage.trace import exported, write_traces

    count = write_traces(exported(source.turns(source.history(progress_bar))), path)
    print(f"{count:,} chains of requests without text in {path}")


def watched(show_once: Callable[[], None], *, watch: bool) -> None:
    """Once, or until Ctrl-C."""
    if not watch:
        show_once()
        return
    try:
        while True:
            print(CLEAR, end="")
            show_once()
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print(parts: list[Any], notes: list[str]) -> None:
    from octavo.usage.show import console

    out = console()
    for part in parts:
        out.print(part)
    for note in notes:
        print(note)


def progress_bar(total_bytes: int) -> Callable[[int], None]:
    """On standard error where it is a terminal; it goes when everything is read."""
    if not sys.stderr.isatty():
        return lambda n_bytes: None
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
