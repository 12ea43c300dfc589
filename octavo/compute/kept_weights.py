"""The folder of rounded weights that were kept for the next start. Owns names, number and size.

Knows nothing of what is in the files and loads nothing heavy: `octavo info` asks it too.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from octavo.compute.hub import cache_folder

SUFFIX = ".packed"
MOST_FILES = 4  # the one that was used longest ago goes first


@dataclass(frozen=True, slots=True)
class Kept:
    """How much lies in the folder."""

    folder: Path
    n_files: int
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.n_files} files of {self.n_bytes:,} B in {self.folder}, which may be deleted"


def folder() -> Path:
    return cache_folder() / "packed"


def kept() -> Kept:
    """Now; nothing where there is no folder."""
    sizes = [path.stat().st_size for path in _files()]
    return Kept(folder(), len(sizes), sum(sizes))


def path_of(key: bytes) -> Path:
    return folder() / f"{key.hex()}{SUFFIX}"


def used(path: Path) -> None:
    """Remember when, so that the right one goes first."""
    with contextlib.suppress(OSError):
        os.utime(path)


def write(path: Path, put: Callable[[BinaryIO], None]) -> None:
    """A file that is there as a whole or not at all. Raises OSError if it cannot be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            put(file)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    for old in sorted(_files(), key=lambda one: one.stat().st_mtime)[:-MOST_FILES]:
        old.unlink(missing_ok=True)


def _files() -> list[Path]:
    return list(folder().glob(f"*{SUFFIX}"))
