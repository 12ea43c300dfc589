"""Where logs lie, and what the names of files and folders tell. Reads no log.

The roots: `$CLAUDE_CONFIG_DIR` (one folder or several with commas between), else
`$XDG_CONFIG_HOME/claude` and `~/.claude`, each with `projects` in it; and the desktop app's folder.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.core.errors import ConfigError
from octavo.usage.rows import MAX_PATH, Place, printable

PROJECTS = "projects"
DESKTOP = ("Claude", "local-agent-mode-sessions")
SUBAGENTS = "subagents"
ENDING = ".jsonl"


@dataclass(frozen=True, slots=True)
class LogFile:
    """`size` and `mtime_ns` as they were when it was found."""

    path: str
    size: int
    mtime_ns: int


def log_roots(given: Sequence[Path], environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders to read, each once. Raises ConfigError for a given one that is no folder."""
    for path in given:
        if not path.is_dir():
            raise ConfigError(f"--logs: {str(path)!a} is no folder", param="logs")
    found = list(given) or [path for path in _usual(environment) if path.is_dir()]
    real = dict.fromkeys(Path(os.path.realpath(path)) for path in found)
    # A root inside another one would be read twice.
    return [path for path in real if not any(up in real for up in path.parents)]


def _usual(environment: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    set_by_hand = [one.strip() for one in environment.get("CLAUDE_CONFIG_DIR", "").split(",")]
    folders = [Path(one).expanduser() for one in set_by_hand if one]
    config = _absolute(environment.get("XDG_CONFIG_HOME"), home / ".config")
    if not folders:
        folders = [config / "claude", home / ".claude"]
    for folder in folders:
        yield folder if folder.name == PROJECTS else folder / PROJECTS
    if sys.platform == "darwin":
        yield home.joinpath("Library", "Application Support", *DESKTOP)
    elif sys.platform == "win32":
        if environment.get("APPDATA"):
            yield Path(environment["APPDATA"]).joinpath(*DESKTOP)
    else:
        yield config.joinpath(*DESKTOP)


def _absolute(given: str | None, usual: Path) -> Path:
    """By the XDG rules a relative path is to be ignored."""
    return Path(given) if given and os.path.isabs(given) else usual


def log_files(root: Path) -> list[LogFile]:
    """Every log at any depth, in a fixed order. What vanishes meanwhile is left out."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(ENDING):
                path = os.path.join(folder, name)
                try:
                    state = os.stat(path)
                except OSError:
                    continue
                if stat.S_ISREG(state.st_mode):  # opening a pipe would wait for its writer
                    found.append(LogFile(path, state.st_size, state.st_mtime_ns))
    return sorted(found, key=lambda file: file.path)


def place_of(path: str) -> Place:
    """What the names of file and folders tell where a row does not: sub-agents' files lie below
    their session's folder, and a project's folder is named by its path."""
    parts = Path(path).parts
    names = [printable(one, MAX_PATH) for one in parts]
    stem = printable(Path(path).stem)
    if SUBAGENTS in parts:
        at = len(parts) - 1 - parts[::-1].index(SUBAGENTS)
        if at >= 2:
            return Place(names[at - 1], names[at - 2], stem)
    return Place(stem, names[-2] if len(names) > 1 else "", "")
