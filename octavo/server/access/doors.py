"""Whether the server still takes work, and why not. Shared by the application and its listener.

Knows neither. Written from the event loop, from a signal handler or from the watchdog's thread:
each of them only sets a flag.
"""

from __future__ import annotations


class Doors:
    """Open, then leaving (work is taken, but /ready says no more), then closed."""

    def __init__(self) -> None:
        self.leaving = False
        self.closed = False
        self.gone = False  # the server has stopped: from now on the engine's end is no failure
        self.failure: str | None = None

    def leave(self) -> None:
        self.leaving = True

    def close(self) -> None:
        self.leaving = self.closed = True

    def fail(self, reason: str) -> None:
        """The engine is lost: the process is to end, with a status that says so."""
        self.failure = self.failure or reason
        self.close()
