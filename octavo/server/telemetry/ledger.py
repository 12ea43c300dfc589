"""The ledger: one row per finished request, written by a thread of its own in batches.

Whoever adds a row never waits and never hears of a full disk: rows wait in bounded memory, what
cannot be kept is counted, and the log says so once. Knows no HTTP.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from octavo.server.telemetry import ledger_file
from octavo.server.telemetry.ledger_file import NAME, Row

log = logging.getLogger("octavo.server")

BATCH_SECONDS = 0.2  # rows of this long are written together
RETRY_SECONDS = 1.0
PRUNE_SECONDS = 3600.0
CLOSE_SECONDS = 10.0
BATCH_ROWS = 1000
WAITING_ROWS = 20_000
KEPT_DAYS = 400
KEPT_ROWS = 1_000_000
DAY_SECONDS = 86_400.0


class Ledger:
    """`folder` is made if need be. Rows older than `days`, or beyond `rows`, are dropped."""

    def __init__(
        self,
        folder: Path,
        *,
        days: int = KEPT_DAYS,
        rows: int = KEPT_ROWS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = folder / NAME
        self.lost_rows = 0
        self._days = days
        self._rows = rows
        self._now = now
        self._waiting: deque[Row] = deque()
        self._lock = threading.Lock()  # guards the two counts
        self._news = threading.Event()
        self._closing = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._pruned_at: float | None = None
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="octavo-ledger", daemon=True)
        self._thread.start()

    def add(self, row: Row) -> None:
        """Keep a row, soon. From any thread; never blocks on the disk."""
        with self._lock:
            if self._closing.is_set() or len(self._waiting) >= WAITING_ROWS:
                self.lost_rows += 1
                return
            self._waiting.append(row)
        self._news.set()

    def close(self) -> None:
        """Write what waits, once, and end the thread. Idempotent; may take a few seconds."""
        self._closing.set()
        self._news.set()
        self._thread.join(CLOSE_SECONDS)

    # -- on the ledger's thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            self._attempt()
            self._closing.wait(RETRY_SECONDS if self._failing else BATCH_SECONDS)
            if not self._waiting:
                self._news.wait(PRUNE_SECONDS)
            self._news.clear()
        self._attempt()
        with self._lock:
            self.lost_rows += len(self._waiting)
        if self._waiting:
            log.error("the ledger ends without its last %d rows", len(self._waiting))
        if self._connection is not None:
            self._connection.close()

    def _attempt(self) -> None:
        """Write all that waits. A failure leaves it there, for the next attempt."""
        try:
            self._write()
        except (sqlite3.Error, OSError) as error:
            self._note_failure(error)
        else:
            if self._failing:
                log.warning("the ledger is written again")
            self._failing = False

    def _write(self) -> None:
        if self._connection is None:
            self._connection = ledger_file.open_to_write(self.path)
        connection = self._connection
        while self._waiting:
            batch = list(islice(self._waiting, BATCH_ROWS))
            ledger_file.append(connection, batch)
            with self._lock:
                for _ in batch:
                    self._waiting.popleft()
        now = self._now()
        if self._pruned_at is None or not 0 <= now - self._pruned_at < PRUNE_SECONDS:
            oldest = now - self._days * DAY_SECONDS
            while ledger_file.prune(connection, oldest=oldest, most_rows=self._rows):
                if self._closing.is_set():
                    break
            self._pruned_at = now

    def _note_failure(self, error: Exception) -> None:
        if not self._failing:
            why = error.strerror if isinstance(error, OSError) else str(error)
            log.error("the ledger cannot be written (%s); serving goes on, rows wait", why)
        self._failing = True
        if self._connection is not None:
            self._connection.close()  # another attempt begins anew: the file may be another one
            self._connection = None
