"""What `octavo serve` tells of itself, as flags: its log, its ledger and its prices."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Command, with_flags

if TYPE_CHECKING:
    from octavo.server.contract import ServedEngine
    from octavo.server.telemetry.prices import Prices
    from octavo.server.telemetry.telemetry import Telemetry

PANEL = "Log and ledger"
PRICES = {
    "price_input": "dollars per million prompt tokens that were computed",
    "price_cache_write": "of those that cache_control asked to keep (default: as input)",
    "price_cache_read": "of prompt tokens read from the cache (default: as input)",
    "price_output": "of generated tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """As given. `data_dir` None: the folder for users' data; `prices` as `Prices.of` takes them."""

    log_format: str
    log_level: str
    data_dir: Path | None
    ledger: bool
    prices: Mapping[str, float | None]

    def check(self) -> Prices | None:
        """The prices. Raises ConfigError for what is wrong with any option."""
        from octavo.server.telemetry import logs
        from octavo.server.telemetry.prices import Prices

        logs.check(self.log_format, self.log_level)
        return Prices.of(**self.prices)

    def log(self) -> AbstractContextManager[None]:
        """Log to standard error meanwhile."""
        from octavo.server.telemetry import logs

        return logs.logging_to(sys.stderr, form=self.log_format, level=self.log_level)

    def over(self, engine: ServedEngine, prices: Prices | None) -> Telemetry:
        """The telemetry of a server over `engine`."""
        from octavo.server.telemetry.ledger import Ledger
        from octavo.server.telemetry.telemetry import Telemetry

        ledger = Ledger(self.data_dir or data_folder()) if self.ledger else None
        return Telemetry(engine, ledger=ledger, prices=prices)


def data_folder() -> Path:
    """Octavo's part of the folder for users' data, by the XDG rules."""
    root = os.environ.get("XDG_DATA_HOME", "")
    # A relative path there is to be ignored.
    base = Path(root) if os.path.isabs(root) else Path.home() / ".local" / "share"
    return base / "octavo"


def with_telemetry_options(command: Command) -> Command:
    """`command` with the flags; it gets them as `telemetry`."""
    return with_flags(command, flags(), into="telemetry", gather=gathered)


def flags() -> list[inspect.Parameter]:
    """The flags as keyword parameters that typer reads."""
    found = [
        _flag("log_format", str, "text", "text, or json for one object a line"),
        _flag("log_level", str, "info", "debug, info (a line a request), warning or error"),
        _flag("data_dir", Path | None, None, "folder of the ledger"),
        _flag("ledger", bool, True, "keep a row of counts for each request"),
    ]
    return found + [_flag(name, float | None, None, text) for name, text in PRICES.items()]


def _flag(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    dashed = name.replace("_", "-")
    spelling = f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"
    info = typer.Option(
        spelling, help=text, rich_help_panel=PANEL, show_default=default is not None
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


def gathered(values: Mapping[str, Any]) -> TelemetryOptions:
    return TelemetryOptions(
        log_format=values["log_format"],
        log_level=values["log_level"],
        data_dir=values["data_dir"],
        ledger=values["ledger"],
        prices={name: values[name] for name in PRICES},
    )
