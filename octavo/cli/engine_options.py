"""The engine's options as flags: names, types and help come from EngineConfig alone."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from octavo.cli.flags import Command, only_given, with_flags
from octavo.core.config import EngineConfig, Option

PANEL = "Engine"
TYPES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": float}


def with_engine_options(command: Command) -> Command:
    """`command` with a flag for every engine option; it gets those that were given as `options`."""
    flags = [flag(option) for option in EngineConfig.options() if option.name != "model"]
    return with_flags(command, flags, into="options", gather=only_given)


def flag(option: Option) -> inspect.Parameter:
    """One engine option as a keyword parameter that typer reads."""
    kind = TYPES[option.type.split(" | ")[0]]
    dashed = option.name.replace("_", "-")
    spelling = f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"
    info = typer.Option(spelling, help=flag_help(option), show_default=False, rich_help_panel=PANEL)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, info],
    )


def flag_help(option: Option) -> str:
    """The option's own words, its choices and its default."""
    text = option.help
    if option.choices:
        text += f" ({', '.join(option.choices)})"
    if option.default is None:
        return text
    shown = str(option.default).lower() if isinstance(option.default, bool) else option.default
    return f"{text} (default: {shown})"
