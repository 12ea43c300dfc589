"""All that the logs under some roots have ever told: read what changed, merge, hand out.

Owns the order of reading and the global rule that one id counts once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.usage.gather import Task, gather, tasks
from octavo.usage.index import FileState, Index, head_of, resume_at
from octavo.usage.message import Compaction, Message, better
from octavo.usage.places import log_files
from octavo.usage.reading import UNREADABLE, Stretch

Advance = Callable[[int], None]
StartProgress = Callable[[int], Advance]


@dataclass(slots=True)
class History:
    """`skipped`: lines by the reason why they do not count. `notes`: for the user."""

    messages: list[Message]
    compactions: list[Compaction] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    files: int = 0
    notes: list[str] = field(default_factory=list)


def collect(
    roots: Iterable[Path], folder: Path | None, *, progress: StartProgress | None = None
) -> History:
    """Bring the index of each root up to date and merge them. `folder` None: keep none."""
    best: dict[str, Message] = {}
    history = History([])
    for root in roots:
        try:
            found = _of_root(root, folder, progress)
        except sqlite3.Error as error:
            # Damaged inside, held by another run for too long, or no room on the disk.
            found = _of_root(root, None, progress)
            found.notes.append(f"the index cannot be used ({error}); everything was read anew")
        for one in found.messages:
            best[one.id] = better(best.get(one.id), one)
        history.compactions += found.compactions
        history.skipped += found.skipped
        history.files += found.files
        history.notes += found.notes
    history.messages = sorted(best.values(), key=lambda one: (one.time, one.id))
    history.compactions.sort()
    return history


def _of_root(root: Path, folder: Path | None, progress: StartProgress | None) -> History:
    """Of one root; raises sqlite3.Error where its index cannot be read or written."""
    history = History([])
    index = Index(root, folder)
    try:
        if index.trouble:
            history.notes.append(index.trouble + "; everything was read anew")
        _update(index, root, history, progress)
        history.messages = list(index.messages())
        history.compactions = list(index.compactions())
    finally:
        index.close()
    return history


def _update(index: Index, root: Path, history: History, progress: StartProgress | None) -> None:
    known = index.files()
    states: dict[str, FileState] = {}
    work: list[Task] = []
    for file in log_files(root):
        history.files += 1
        old = known.get(file.path)
        start = resume_at(file, old)
        if start is None:
            assert old is not None
            _count(history, old)
            continue
        kept = old.skipped if old is not None and start else Counter[str]()
        states[file.path] = FileState(file.size, file.mtime_ns, start, "", kept, Counter())
        work += tasks(file.path, start, file.size)
    _read(index, work, states, progress)
    for path, state in states.items():
        state.head = head_of(path, state.end)
        _count(history, state)
    # A file that could not be opened has not changed when it can be: it must be tried again.
    index.put_files((path, one) for path, one in states.items() if not one.tail[UNREADABLE])


def _read(
    index: Index,
    work: Sequence[Task],
    states: dict[str, FileState],
    progress: StartProgress | None,
) -> None:
    total = sum(one.stop - one.start for one in work)
    advance = progress(total) if progress is not None and total else None

    def take(stretch: Stretch) -> None:
        index.take(stretch)
        state = states[stretch.path]
        state.end = max(state.end, stretch.end)
        state.skipped += stretch.skipped
        state.tail += stretch.tail
        if advance is not None:
            advance(stretch.stop - stretch.start)

    gather(work, take)


def _count(history: History, state: FileState) -> None:
    history.skipped += state.skipped
    history.skipped += state.tail
