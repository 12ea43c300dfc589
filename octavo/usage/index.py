"""What has been counted under one root, kept so that the next run reads only what changed.

One SQLite file per root, for its owner alone. It keeps every answer's numbers for good: logs are
deleted after a month, and an answer that turns up again in another file must still count once. It
holds numbers, names, ids and paths, never text.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.usage.message import Compaction, Message, better
from octavo.usage.places import LogFile
from octavo.usage.reading import Stretch

VERSION = 1
BUSY_SECONDS = 30.0
HEAD_BYTES = 1024
ASKED_AT_ONCE = 500
SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY, numbers TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS compactions (
    session TEXT, agent TEXT, time REAL, PRIMARY KEY (session, agent, time)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, end INTEGER, head TEXT,
    skipped TEXT, tail TEXT) WITHOUT ROWID;
"""


@dataclass(slots=True)
class FileState:
    """How far a file has been read. `head`: digest of its first bytes, to know it again."""

    size: int
    mtime_ns: int
    end: int
    head: str
    skipped: Counter[str]
    tail: Counter[str]


class Index:
    """`folder` None, or one that cannot be used: in memory, for this run only."""

    def __init__(self, root: Path, folder: Path | None) -> None:
        self.trouble = ""
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        try:
            path = ":memory:" if folder is None else _private_file(folder, f"usage-{name}.sqlite")
            self._connection = _opened(path)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.trouble = f"the index usage-{name}.sqlite cannot be used ({why})"
            self._connection = _opened(":memory:")

    def close(self) -> None:
        self._connection.close()

    def files(self) -> dict[str, FileState]:
        """What is known of each file."""
        found = self._connection.execute(
            "SELECT path, size, mtime_ns, end, head, skipped, tail FROM files"
        )
        return {
            os.fsdecode(path): FileState(
                size, mtime_ns, end, head, Counter(json.loads(skipped)), Counter(json.loads(tail))
            )
            for path, size, mtime_ns, end, head, skipped, tail in found
        }

    def take(self, stretch: Stretch) -> None:
        """Merge what a stretch holds. Merging it again changes nothing."""
        with self._writing():
            for chunk in _chunks(list(stretch.messages.values()), ASKED_AT_ONCE):
                marks = ",".join("?" * len(chunk))
                rows = self._connection.execute(
                    f"SELECT numbers FROM messages WHERE id IN ({marks})",
                    [one.id for one in chunk],
                )
                known = {one.id: one for one in map(_message, rows)}
                self._connection.executemany(
                    "INSERT OR REPLACE INTO messages VALUES (?, ?)",
                    [
                        (one.id, json.dumps(one.as_row(), separators=(",", ":")))
                        for one in chunk
                        if better(known.get(one.id), one) is one
                    ],
                )
            self._connection.executemany(
                "INSERT OR IGNORE INTO compactions VALUES (?, ?, ?)", stretch.compactions
            )

    def put_files(self, states: Iterable[tuple[str, FileState]]) -> None:
        """After everything that was read of them has been taken."""
        with self._writing():
            self._connection.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(_stored(path), state.size, state.mtime_ns, state.end, state.head),
                        *(json.dumps(state.skipped), json.dumps(state.tail)),
                    )
                    for path, state in states
                ],
            )

    def messages(self) -> Iterator[Message]:
        """All, also of files that are gone."""
        return map(_message, self._connection.execute("SELECT numbers FROM messages"))

    def compactions(self) -> Iterator[Compaction]:
        found = self._connection.execute("SELECT session, agent, time FROM compactions")
        return (Compaction(*row) for row in found)

    def _writing(self) -> sqlite3.Connection:
        """Commits at its end. Another run waits: rows are compared before they are replaced."""
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection


def head_of(path: str, end: int) -> str:
    """Digest of the first bytes of what has been read; "" if the file is gone."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(min(end, HEAD_BYTES))).hexdigest()[:32]
    except OSError:
        return ""


def resume_at(file: LogFile, state: FileState | None) -> int | None:
    """Where to go on reading a file; None: nothing has changed. A log only grows at its end; one
    that was written anew is read anew."""
    if state is None:
        return 0
    if (state.size, state.mtime_ns) == (file.size, file.mtime_ns):
        return None
    same = file.size >= state.end and head_of(file.path, state.end) == state.head
    return state.end if same else 0


def _message(row: Sequence[str]) -> Message:
    return Message.from_row(json.loads(row[0]))


def _stored(path: str) -> str | bytes:
    """SQLite's text is UTF-8; a path need not be."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def _private_file(folder: Path, name: str) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return str(path)


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}, this release has {VERSION}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _chunks(rows: list[Message], size: int) -> Iterator[list[Message]]:
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]
