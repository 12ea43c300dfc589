"""How fast something has been going: amounts and when they came. Knows not what is measured."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 30.0
MAX_EVENTS = 1024


class Pace:
    """Amount per second over the last while. Times in seconds on the caller's clock."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, int]] = deque(maxlen=MAX_EVENTS)

    def note(self, amount: int, now: float) -> None:
        self._events.append((now, amount))

    def seconds_for(self, amount: int, now: float) -> float | None:
        """How long `amount` will take; None if too little has been seen to tell."""
        events = self._events
        while events and events[0][0] < now - WINDOW_SECONDS:
            events.popleft()
        # The first event starts the measurement: what it took to come about is not known.
        done = sum(each for _, each in events) - events[0][1] if events else 0
        if done <= 0:
            return None
        return amount * (now - events[0][0]) / done
