"""Watches that the engine lives and gets on, and has the process end when it does not.

Two locks. A thread looks at the engine every second: without progress it writes where every thread
stands (files, lines and functions, no values, so no prompts), has all requests answered, and has
the server stop. A thread of the interpreter's own, which needs no lock of the interpreter, ends the
process should even that thread, or the way out, be blocked. Knows no HTTP.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import sys
import threading
from typing import Protocol

from octavo.server.access.doors import Doors

log = logging.getLogger("octavo.server")

LOOK_SECONDS = 1.0
LOOKS_PER_ARMING = 5
EXIT_SECONDS = 15.0  # from a failure to the end of the process, at most
DIED = "the engine has failed and must be restarted"


class Watched(Protocol):
    """`progress` is None without work, else a value that changes whenever the work gets on."""

    def alive(self) -> bool: ...
    def progress(self) -> object: ...
    def fail(self, reason: str) -> None: ...


class Watchdog:
    """Call `look` every second, or `start` a thread that does. `seconds` 0: only death counts."""

    def __init__(self, engine: Watched, doors: Doors, *, seconds: float) -> None:
        self._engine = engine
        self._doors = doors
        self._seconds = seconds
        self._seen: object = None
        # Looks, not a clock: time in which the whole machine slept does not count.
        self._idle_looks = 0
        self._stop = threading.Event()

    def look(self) -> None:
        """Once: note progress, or give the engine up."""
        if not self._engine.alive():
            if not self._doors.gone:
                self._doors.fail(DIED)
            return
        progress = self._engine.progress()
        if progress is None or progress != self._seen:
            self._seen, self._idle_looks = progress, 0
            return
        self._idle_looks += 1
        if self._seconds and self._idle_looks * LOOK_SECONDS >= self._seconds:
            reason = f"the engine made no progress for {self._seconds:g} s and was given up"
            log.error("%s; where its threads stand:", reason)
            dump_stacks()
            self._engine.fail(reason)
            self._doors.fail(reason)

    def start(self) -> None:
        self._arm()
        threading.Thread(target=self._run, name="octavo-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        disarm()

    def _run(self) -> None:
        looks = 0
        while not self._stop.wait(LOOK_SECONDS):
            self.look()
            if self._doors.failure:
                arm(EXIT_SECONDS)
                return
            looks += 1
            if looks % LOOKS_PER_ARMING == 0:
                self._arm()

    def _arm(self) -> None:
        if self._seconds:
            arm(self._seconds + EXIT_SECONDS)


def dump_stacks() -> None:
    """Every thread's stack to standard error, if that is a file."""
    with contextlib.suppress(io.UnsupportedOperation, ValueError):
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


def arm(seconds: float) -> None:
    """End the process with status 1 after `seconds`, stacks first, unless armed again by then."""
    with contextlib.suppress(io.UnsupportedOperation, ValueError):
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)


def disarm() -> None:
    faulthandler.cancel_dump_traceback_later()
