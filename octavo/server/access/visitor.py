"""Who is asking: the key of the request that runs in this context. Owns the variable only.

It is set before routing, for every request. So whatever a route submits to the engine is counted
and kept apart by key, without the route having to think of it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visitor:
    """`key_id` is empty where no keys are asked for. `seconds`: what the caller will wait for."""

    key_id: str = ""
    seconds: float | None = None


visitor: ContextVar[Visitor] = ContextVar("octavo_visitor")
