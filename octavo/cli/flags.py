"""Flags that several commands share: added to a command's signature, gathered into one argument."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Command = Callable[..., None]


def with_flags(
    command: Command,
    flags: Sequence[inspect.Parameter],
    *,
    into: str,
    gather: Callable[[Mapping[str, Any]], Any],
) -> Command:
    """`command` with `flags` beside its own; it gets what `gather` makes of them as `into`.

    A flag that the command has itself stays the command's.
    """
    own = inspect.signature(command, eval_str=True)
    added = [one for one in flags if one.name not in own.parameters]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {one.name: values.pop(one.name) for one in added}
        command(**values, **{into: gather(given)})

    kept = [one for one in own.parameters.values() if one.name != into]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in kept] + added
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def only_given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flags that were given: their default is None, so that the rest stays others' to decide."""
    return {name: value for name, value in values.items() if value is not None}
