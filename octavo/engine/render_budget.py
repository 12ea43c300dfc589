"""How much work one rendering of a chat template may do, and the meter that counts it.

Owns the limits and the errors for exceeding them. Knows values, not templates: `template_sandbox`
decides where to ask. Each rendering has its own budget in a context variable: threads share none.

What bounds what:
- `steps`: loop turns, calls, filters and operators, so loops in loops and recursive macros end;
- `seconds`: the same places look at the clock;
- `value_chars`, `value_nodes`: every string or list a template builds is weighed, shared parts once
  per mention, so that neither doubling nor nesting can grow one beyond what was paid for;
- `total_chars`: all strings built in one rendering.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class RenderLimit(Exception):
    """A template did more than it may. The text says which limit; it holds nothing of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderLimits:
    """Limits of one template. Characters, list elements, counts and seconds as the names say."""

    template_chars: int = 1 << 17
    value_chars: int = 1 << 24
    value_nodes: int = 100_000
    total_chars: int = 1 << 28
    steps: int = 400_000
    seconds: float = 3.0


class RenderBudget:
    """What is left of one rendering."""

    __slots__ = ("_chars", "_deadline", "_steps", "limits")

    def __init__(self, limits: RenderLimits) -> None:
        self.limits = limits
        self._steps = limits.steps
        self._chars = limits.total_chars
        self._deadline = time.monotonic() + limits.seconds

    def step(self, n: int = 1) -> None:
        """Count `n` units of work."""
        self._steps -= n
        if self._steps < 0:
            raise RenderLimit(f"it takes more than {self.limits.steps} steps")
        if time.monotonic() > self._deadline:
            raise RenderLimit(f"it takes longer than {self.limits.seconds:g} seconds")

    def allow(self, *, n_chars: int = 0, n_nodes: int = 0) -> None:
        """Refuse a value of this size before it is built."""
        if n_chars > self.limits.value_chars:
            raise RenderLimit(f"it builds more than {self.limits.value_chars} characters")
        if n_nodes > self.limits.value_nodes:
            raise RenderLimit(f"it builds more than {self.limits.value_nodes} list elements")

    def weigh(self, value: Any) -> Any:
        """Count a value that a template has built, return it. A part counts at every mention."""
        if isinstance(value, str):
            n_chars, n_nodes = len(value), 0
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            n_chars, n_nodes = self._weigh_nested(value)
        else:
            return value
        self.allow(n_chars=n_chars, n_nodes=n_nodes)
        self._chars -= n_chars
        if self._chars < 0:
            raise RenderLimit(f"it builds more than {self.limits.total_chars} characters in all")
        return value

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """The same values, each counted as a step when it is asked for."""
        for value in values:
            self.step()
            yield value

    def _weigh_nested(self, value: Any) -> tuple[int, int]:
        """(characters, nodes) of a nested value; stops at the first limit it passes."""
        stack, n_chars, n_nodes = [value], 0, 0
        while stack:
            item = stack.pop()
            n_nodes += 1
            if isinstance(item, str):
                n_chars += len(item)
            elif isinstance(item, Mapping):
                self.allow(n_nodes=n_nodes + 2 * len(item))
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, list | tuple | set | frozenset):
                self.allow(n_nodes=n_nodes + len(item))
                stack.extend(item)
            self.allow(n_chars=n_chars, n_nodes=n_nodes)
        self.step(1 + n_nodes // 8)
        return n_chars, n_nodes


_CURRENT: ContextVar[RenderBudget] = ContextVar("render_budget")


def current_budget() -> RenderBudget:
    """The budget of the rendering that this thread is in."""
    return _CURRENT.get()


@contextmanager
def spending(budget: RenderBudget) -> Iterator[RenderBudget]:
    """Make `budget` the current one within a `with` block."""
    token = _CURRENT.set(budget)
    try:
        yield budget
    finally:
        _CURRENT.reset(token)
