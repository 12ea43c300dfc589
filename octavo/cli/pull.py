"""`octavo pull`: fetch a model without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.local import DEFAULT_MODEL
from octavo.cli.units import size


def pull(
    model: Annotated[str, typer.Argument(help="alias or hub id")] = DEFAULT_MODEL,
) -> None:
    """Fetch a model into the cache and print where it is."""
    from octavo.compute.hub import resolve

    path = resolve(model)
    print(f"{path} ({size(bytes_on_disk(path))})")


def bytes_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
