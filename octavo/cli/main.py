"""The entry point: finds the command and turns our errors into one line and an exit code.

Imports nothing heavy: help must come at once. 2 is the caller's fault, 1 is ours.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

import octavo
from octavo.cli.bench import make_bench_app
from octavo.cli.chat import chat
from octavo.cli.generate import generate
from octavo.cli.info import info
from octavo.cli.keys import make_keys_app
from octavo.cli.plan import plan
from octavo.cli.pull import pull
from octavo.cli.serve import serve
from octavo.cli.usage import usage
from octavo.core.errors import EngineError, OctavoError

OUR_FAULT = 1
CALLERS_FAULT = 2


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"octavo {octavo.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=show_version, is_eager=True, help="show the version"),
    ] = None,
) -> None:
    """An LLM inference engine whose KV cache you can see, measure and price."""
    del version


def make_app() -> typer.Typer:
    """All commands. Exceptions are left to `main`."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut long flag names in a narrow terminal
        callback=root,
    )
    for command in (serve, chat, generate, pull, info, plan, usage):
        app.command()(command)
    app.add_typer(make_bench_app(), name="bench")
    app.add_typer(make_keys_app(), name="keys")
    return app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command line and exit."""
    try:
        make_app()(args=arguments, prog_name="octavo")
    except OctavoError as error:
        fail(error.message, OUR_FAULT if isinstance(error, EngineError) else CALLERS_FAULT)
    except BrokenPipeError:
        # The reader of our output has left (`octavo generate … | head`): not worth a word.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OUR_FAULT)
    sys.exit(0)


def fail(message: str, exit_code: int) -> NoReturn:
    """One line on standard error."""
    print(f"octavo: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)
