"""`octavo keys`: make an API key. Stores nothing: a key is shown once, with the line to keep."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def make_keys_app() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    app.callback()(keys)
    app.command()(new)
    return app


def keys() -> None:
    """Make API keys for `octavo serve --keys-file`."""


def new(
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="infer, metrics or admin; may be given several times", show_default=False
        ),
    ] = None,
    key_id: Annotated[
        str | None,
        typer.Option("--id", help="its name in logs and accounts; default: a random one"),
    ] = None,
) -> None:
    """Print a new key to standard error, and the line that knows its hash to standard output.

    `octavo keys new --id alice >> keys.txt` shows the key and keeps the hash. Without --scope it
    may infer.
    """
    import secrets

    from octavo.server.access.keys import ApiKey, checked_id, checked_scopes, new_secret

    name = checked_id(f"key-{secrets.token_hex(4)}" if key_id is None else key_id)
    scopes = checked_scopes(scope or ["infer"])
    secret = new_secret()
    print(f"The key, which is shown only now:\n{secret}", file=sys.stderr)
    print(ApiKey.of(name, secret, scopes).line())
