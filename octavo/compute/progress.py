"""How long work on bytes is shown. Owns bars and lines on standard error; knows no downloads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

# Called with the bytes done since the stage began.
Advance = Callable[[int], None]


class Progress(Protocol):
    """Shows one stage at a time."""

    def stage(self, title: str, *, total_bytes: int | None) -> AbstractContextManager[Advance]:
        """Open a stage; None: how much it is is not known, or others show it."""


class TerminalProgress:
    """A bar where standard error is a terminal and the size is known, else one line per stage."""

    @contextmanager
    def stage(self, title: str, *, total_bytes: int | None) -> Iterator[Advance]:
        if total_bytes is None or not sys.stderr.isatty():
            size = "" if total_bytes is None else f" ({total_bytes / 1e6:.0f} MB)"
            print(f"{title}{size}", file=sys.stderr, flush=True)
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Bars(*columns, TransferSpeedColumn(), console=Console(stderr=True)) as bars:
            task = bars.add_task(title, total=total_bytes)
            yield lambda done: bars.update(task, completed=done)


class NoProgress:
    """Shows nothing."""

    @contextmanager
    def stage(self, title: str, *, total_bytes: int | None) -> Iterator[Advance]:
        del title, total_bytes
        yield lambda done: None
