"""Who is asking: the key of the request that runs in this context. Owns the variable only.

It is set before routing, for every request. So whatever a route submits to the engine is counted
and kept apart by key, without the route having to think of it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class Account:
    """Places in the engine, and uncached prompt tokens without an answer yet."""

    places: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Visitor:
    """`key_id` is empty where no keys are asked for. `seconds`: what the caller will wait for, from
    `arrived_at` on, on the event loop's clock; None: from when it is submitted.

    `account`: what this HTTP request holds, all its prompts together.
    """

    key_id: str = ""
    seconds: float | None = None
    arrived_at: float | None = None
    account: Account = field(default_factory=Account)


visitor: ContextVar[Visitor] = ContextVar("octavo_visitor")
