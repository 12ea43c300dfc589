"""What is known of one HTTP request for the log, the metrics and the ledger. Never its content.

The record of the request being served is found from anywhere in its task: `current`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from starlette.types import Scope

from octavo.engine.types import GenerateRequest
from octavo.server.telemetry.generation import Generation, Outcome
from octavo.server.telemetry.traffic import Answer

KEY_ID = "octavo.key_id"  # where whoever checks keys leaves the name of the caller's
OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Observer(Protocol):
    """Who is told of requests. `now`: the clock of receipts, in seconds."""

    def now(self) -> float: ...
    def first_token(self, seconds: float) -> None: ...
    def gap(self, seconds: float) -> None: ...
    def ended(self, record: Record, outcome: Outcome) -> None: ...
    def answered(self, record: Record) -> None: ...


class Record:
    """`status` and `seconds` are set when the request is over."""

    def __init__(self, request_id: str, scope: Scope, observer: Observer) -> None:
        self.request_id = request_id
        self.generations: list[Generation] = []
        self.status = 0
        self.seconds = 0.0
        self._scope = scope
        self._observer = observer

    @property
    def key_id(self) -> str | None:
        key_id = self._scope.get(KEY_ID)
        return key_id if isinstance(key_id, str) else None

    @property
    def method(self) -> str:
        return str(self._scope["method"])

    @property
    def path(self) -> str:
        """As it was sent: percent-encoded, so that it cannot forge a line of the log."""
        raw: bytes = self._scope.get("raw_path", b"")
        return raw.decode("ascii", "replace")[:200]

    @property
    def answer(self) -> Answer:
        """For counting: the route that matched, not what the caller wrote. There are few."""
        route = str(getattr(self._scope.get("route"), "path", OTHER))
        method = self.method if self.method in METHODS else OTHER
        return Answer(route, method, self.status)

    def watch(self, request: GenerateRequest) -> Generation:
        """A watch over a request that is about to be submitted."""
        generation = Generation(request, self, arrived_at=self._observer.now())
        self.generations.append(generation)
        return generation

    def first_token(self, seconds: float) -> None:
        self._observer.first_token(seconds)

    def gap(self, seconds: float) -> None:
        self._observer.gap(seconds)

    def ended(self, outcome: Outcome) -> None:
        self._observer.ended(self, outcome)

    def over(self, status: int, seconds: float) -> None:
        """The answer has been sent, or nobody is left to take it."""
        self.status, self.seconds = status, seconds
        self._observer.answered(self)


current: ContextVar[Record | None] = ContextVar("octavo_record", default=None)
