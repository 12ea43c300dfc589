"""Stretches of many files read by several processes. Owns the processes and what travels.

What travels is JSON over pipes. Each process asks for work when it is done with the last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from octavo.core.errors import EngineError
from octavo.usage.reading import Stretch, read
from octavo.usage.worker import from_json

STRETCH_BYTES = 8 << 20
ALONE_BYTES = 16 << 20  # below it, starting processes takes longer than reading
MOST_PROCESSES = 8


class Task(NamedTuple):
    """Lines that start in [start, stop)."""

    path: str
    start: int
    stop: int


def tasks(path: str, start: int, size: int) -> Iterator[Task]:
    """A file from `start` on, in stretches."""
    for begin in range(start, size, STRETCH_BYTES):
        yield Task(path, begin, min(size, begin + STRETCH_BYTES))


def gather(work: Sequence[Task], take: Callable[[Stretch], None]) -> None:
    """Read everything; `take` gets each stretch, in any order, on this thread."""
    total = sum(one.stop - one.start for one in work)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processes = min(cores or 1, MOST_PROCESSES, len(work))
    if total <= ALONE_BYTES or processes < 2:
        for one in work:
            take(read(*one))
        return
    # Large ones first, so that all end at about the same time.
    waiting: Queue[Task | None] = Queue()
    for one in sorted(work, key=lambda task: task.start - task.stop):
        waiting.put(one)
    answers: Queue[Stretch | None] = Queue()
    workers: list[_Worker] = []
    try:
        # Those that have started are in the list, should a later one fail.
        workers.extend(_Worker(waiting, answers) for _ in range(processes))
        for _ in work:
            answer = answers.get()
            if answer is None:
                raise EngineError("a process that reads logs has ended early")
            take(answer)
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.close()


class _Worker:
    """A process and the thread that talks to it."""

    def __init__(self, waiting: Queue[Task | None], answers: Queue[Stretch | None]) -> None:
        place = str(Path(__file__).resolve().parents[2])
        old = os.environ.get("PYTHONPATH")
        # -P: a module of the same name in the current folder must not be taken for one of ours.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "octavo.usage.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([place, old] if old else [place]),
                "PYTHONIOENCODING": "utf-8:surrogateescape",
            },
        )
        self._waiting, self._answers = waiting, answers
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        process = self._process
        assert process.stdin
        assert process.stdout
        while (task := self._waiting.get()) is not None:
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                answer = from_json(process.stdout.readline())
            except (OSError, ValueError):
                # Its pipe is closed, or its last line was cut off.
                self._answers.put(None)
                return
            self._answers.put(answer)

    def stop(self) -> None:
        """End the process, whatever it does. All are stopped before one is closed: any of their
        threads may take the word that there is no more work."""
        self._waiting.put(None)
        self._process.kill()

    def close(self) -> None:
        """Wait until process and thread have ended."""
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what is still in its buffer has nobody to go to
                    pipe.close()
