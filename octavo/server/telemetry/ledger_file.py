"""The ledger's SQLite file: its table, how rows go in, how old ones go. Knows no threads.

Write-ahead logging, so that readers and several servers can share one file and a write that was
torn by a crash is undone at the next start. Times are unix seconds, days are UTC.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

NAME = "ledger.sqlite"
VERSION = 1
BUSY_SECONDS = 5.0
PRUNED_AT_ONCE = 50_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ended_at REAL NOT NULL,
    request_id TEXT NOT NULL,
    key_id TEXT,
    model TEXT NOT NULL,
    finish TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    read_tokens INTEGER NOT NULL,
    written_5m_tokens INTEGER NOT NULL,
    written_1h_tokens INTEGER NOT NULL,
    written_implicit_tokens INTEGER NOT NULL,
    unkept_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    first_token_seconds REAL,
    duration_seconds REAL NOT NULL,
    block_seconds REAL NOT NULL,
    cost_dollars REAL
);
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (ended_at);
"""


class Row(NamedTuple):
    """One finished request, in the order of the table's columns."""

    ended_at: float
    request_id: str
    key_id: str | None
    model: str
    finish: str
    prompt_tokens: int
    read_tokens: int
    written_5m_tokens: int
    written_1h_tokens: int
    written_implicit_tokens: int
    unkept_tokens: int
    output_tokens: int
    first_token_seconds: float | None
    duration_seconds: float
    block_seconds: float
    cost_dollars: float | None


INSERT = (
    f"INSERT INTO requests ({', '.join(Row._fields)}) VALUES ({', '.join('?' * len(Row._fields))})"
)


class UnknownVersion(sqlite3.DatabaseError):
    """Another release's file: it is left alone."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """The file with its table, made for its owner alone. Raises OSError or sqlite3.Error."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise UnknownVersion(f"it has version {version}, this release writes {VERSION}")
        if version == 0:
            connection.executescript(
                f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """The file as it is. Raises sqlite3.Error, also where there is none."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)


def append(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """All rows or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def prune(connection: sqlite3.Connection, *, oldest: float, most_rows: int) -> int:
    """Drop rows that ended before `oldest`, and the first ones beyond `most_rows`.

    Returns how many went; a bounded number goes at once, so that nobody waits long for the file.
    """
    done = connection.execute(
        "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE ended_at < ? "
        "OR id <= (SELECT max(id) FROM requests) - ? ORDER BY id LIMIT ?)",
        (oldest, most_rows, PRUNED_AT_ONCE),
    )
    return done.rowcount
