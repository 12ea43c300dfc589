"""Flags of `octavo serve` about who may ask, how much and for how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Command, with_flags
from octavo.core.errors import ConfigError
from octavo.server.limits import ServerLimits

if TYPE_CHECKING:
    from octavo.server.access.keys import Keyring

ACCESS = "Access"
HOLDING = "Limits of the server"
KEY_VARIABLE = "OCTAVO_API_KEY"
DAY_SECONDS = 86_400
# Flag, lowest and highest value, and help of a field of ServerLimits.
BOUNDS: dict[str, tuple[str, float, float, str]] = {
    "waiting_tokens": ("max-waiting-tokens", 1, 1 << 40, "uncached prompt tokens that may wait"),
    "key_share": ("key-share", 0.01, 1, "part of the queue that one of several keys may take"),
    "queue_seconds": ("queue-timeout", 0.1, DAY_SECONDS, "seconds to wait until it runs"),
    "request_seconds": ("request-timeout", 0, DAY_SECONDS, "seconds for a request; 0: no bound"),
    "pre_stop_seconds": ("pre-stop-delay", 0, DAY_SECONDS, "seconds to take work when stopping"),
    "drain_seconds": ("drain-timeout", 0, DAY_SECONDS, "seconds to finish when stopping"),
    "watchdog_seconds": ("watchdog", 0, DAY_SECONDS, "seconds without progress to end; 0: never"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, as it was given."""

    api_keys: tuple[str, ...]
    keys_file: Path | None
    share_cache: bool
    unauthenticated: bool

    def keyring(self, *, on_loopback: bool) -> Keyring:
        """The keys. Raises ConfigError where anybody could use the server without one."""
        from octavo.server.access.keys import Keyring, given_keys, read_keys

        keys = given_keys(self.api_keys)
        if self.keys_file is not None:
            keys += read_keys(self.keys_file)
        if not keys and not on_loopback and not self.unauthenticated:
            raise ConfigError(
                "whoever reaches this address could use the model: set --api-key or --keys-file, "
                "listen on 127.0.0.1, or say --allow-unauthenticated",
                param="host",
            )
        return Keyring(keys)


@dataclass(frozen=True, slots=True)
class Holding:
    """What the flags of this file say."""

    access: Access
    bounds: Mapping[str, float]

    def limits(self) -> ServerLimits:
        for name, value in self.bounds.items():
            if not math.isfinite(value):
                flag = BOUNDS[name][0]
                raise ConfigError(f"--{flag} must be a finite number", param=flag)
        return ServerLimits(**self.bounds)  # type: ignore[arg-type]


def with_holding_options(command: Command) -> Command:
    """`command` with these flags; it gets them as `holding`."""
    return with_flags(command, [*access_flags(), *bound_flags()], into="holding", gather=gathered)


def gathered(values: Mapping[str, Any]) -> Holding:
    access = Access(
        tuple(values["api_key"] or ()),
        values["keys_file"],
        values["share_cache_between_keys"],
        values["allow_unauthenticated"],
    )
    return Holding(access, {name: values[name] for name in BOUNDS})


def access_flags() -> list[Parameter]:
    """Flags about keys."""
    key_help = "a key that clients must send; may be given several times, spaces in the variable"
    file_help = "file of hashed keys, as `octavo keys new` prints them"
    share_help = "let keys read each other's cached blocks"
    open_help = "no keys beyond loopback: whoever reaches the server may use it"
    return [
        flag("api_key", list[str] | None, None, option("--api-key", key_help, envvar=KEY_VARIABLE)),
        flag("keys_file", Path | None, None, option("--keys-file", file_help)),
        flag(
            "share_cache_between_keys",
            bool,
            False,
            option("--share-cache-between-keys", share_help),
        ),
        flag("allow_unauthenticated", bool, False, option("--allow-unauthenticated", open_help)),
    ]


def bound_flags() -> list[Parameter]:
    """Flags of ServerLimits."""
    flags = []
    for name, (spelling, low, high, text) in BOUNDS.items():
        default = getattr(ServerLimits(), name)
        info = typer.Option(f"--{spelling}", help=text, min=low, max=high, rich_help_panel=HOLDING)
        flags.append(flag(name, type(default), default, info))
    return flags


def option(spelling: str, text: str, *, envvar: str | None = None) -> Any:
    return typer.Option(
        spelling, help=text, envvar=envvar, show_default=False, rich_help_panel=ACCESS
    )


def flag(name: str, kind: Any, default: Any, info: Any) -> Parameter:
    """One flag as a keyword parameter that typer reads."""
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
