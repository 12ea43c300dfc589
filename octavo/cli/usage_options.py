"""The flags that say what `octavo usage` reads and what of it counts."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Command, with_flags
from octavo.cli.telemetry_options import data_folder
from octavo.core.errors import ConfigError

if TYPE_CHECKING:
    from octavo.usage.ask import Source
    from octavo.usage.grouping import Filter

PANEL = "What is read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As given."""

    since: str | None
    until: str | None
    timezone: str
    project: str
    model: str
    logs: list[Path] | None
    trace: list[Path] | None
    server: str | None
    prices: Path | None
    index: bool

    def check(self) -> None:
        """Refuse options that would change nothing."""
        if self.logs and self.trace:
            raise ConfigError("--trace: give either logs or traces", param="trace")
        if self.server is None:
            return
        for name in ("logs", "trace", "timezone", "prices"):
            if getattr(self, name):
                raise ConfigError(f"--{name}: not together with --server", param=name)

    def filter(self) -> Filter:
        """Raises ConfigError for a day that is none."""
        from octavo.usage.grouping import Filter, day_named

        return Filter(
            since=day_named(self.since, "since"),
            until=day_named(self.until, "until"),
            project=self.project,
            model=self.model,
        )

    def source(self) -> Source:
        """Logs or traces with their prices. Raises ConfigError."""
        from octavo.pricing.api_prices import open_prices
        from octavo.usage.ask import Source
        from octavo.usage.grouping import zone_named

        return Source(
            prices=open_prices(self.prices),
            logs=tuple(self.logs or ()),
            traces=tuple(self.trace or ()),
            now=time.time(),
            index=data_folder() if self.index else None,
            wanted=self.filter(),
            zone=zone_named(self.timezone),
        )


def with_usage_options(command: Command) -> Command:
    """`command` with the flags; it gets them as `asked`."""
    return with_flags(command, flags(), into="asked", gather=_gathered)


def _gathered(values: Mapping[str, Any]) -> Asked:
    return Asked(**values)


def flags() -> list[inspect.Parameter]:
    """The flags as keyword parameters that typer reads."""
    return [
        _flag("since", str | None, None, "first day that counts", "DAY"),
        _flag("until", str | None, None, "last day that counts", "DAY"),
        _flag("timezone", str, "", "zone of the days, such as UTC; default: this machine's"),
        _flag("project", str, "", "only projects whose folder contains this"),
        _flag("model", str, "", "only models whose name contains this"),
        _flag(
            *("logs", list[Path] | None, None),
            *("read these logs; default: the coding agent's own", "DIR"),
        ),
        _flag("trace", list[Path] | None, None, "read traces instead, as exported", "PATH"),
        _flag("server", str | None, None, "ask the ledger of a running octavo serve", "URL"),
        _flag(
            *("prices", Path | None, None),
            *("own prices, or LiteLLM's file; asked before others", "FILE"),
        ),
        _flag("index", bool, True, "keep what was counted, so that only what is new is read"),
    ]


def _flag(
    name: str, kind: Any, default: Any, text: str, metavar: str | None = None
) -> inspect.Parameter:
    option = typer.Option(help=text, metavar=metavar, rich_help_panel=PANEL)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
