"""Ctrl-C at a safe moment: between two pieces of an answer, not inside an engine's step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Interrupt:
    """Whether Ctrl-C was pressed since."""

    pending: bool = False


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Note the first Ctrl-C and let the work come to its next stop; the second one is immediate."""
    interrupt = Interrupt()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupt.pending:
            raise KeyboardInterrupt
        interrupt.pending = True

    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
