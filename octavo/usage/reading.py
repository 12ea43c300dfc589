"""A stretch of one log file, read line by line. Owns line ends, bounds and what is resumable.

Holds one line and the stretch's own answers in memory, never the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from octavo.usage.message import Compaction, Message, better
from octavo.usage.places import place_of
from octavo.usage.rows import INVALID, OTHER, SYNTHETIC, TORN, UNKNOWN, parse

MAX_LINE_BYTES = 64 << 20
TOO_LONG, UNREADABLE = "too_long", "unreadable_file"
# Reasons in the order in which they are shown. Other rows hold no tokens and are no loss.
REASONS = (TORN, INVALID, UNKNOWN, SYNTHETIC, TOO_LONG, UNREADABLE)


@dataclass(slots=True)
class Stretch:
    """Lines that start in [start, stop) of a file; the one after the last may be cut off.

    `end`: where the next run goes on: behind the last whole line; 0 where none ended here. `tail`:
    what was skipped beyond.
    """

    path: str
    start: int
    stop: int
    end: int = 0
    messages: dict[str, Message] = field(default_factory=dict)
    compactions: set[Compaction] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    tail: Counter[str] = field(default_factory=Counter)


def read(path: str, start: int, stop: int) -> Stretch:
    """Never raises for what is in the file; one that cannot be opened is counted."""
    stretch = Stretch(path, start, stop)
    place = place_of(path)
    try:
        with open(path, "rb") as file:
            for line, whole in _lines(file, stretch):
                counts = stretch.skipped if whole else stretch.tail
                if line is None:
                    counts[TOO_LONG] += 1
                    continue
                if not line:
                    continue
                found = parse(line, place)
                if isinstance(found, Message):
                    stretch.messages[found.id] = better(stretch.messages.get(found.id), found)
                elif isinstance(found, Compaction):
                    stretch.compactions.add(found)
                elif found != OTHER:
                    counts[found] += 1
    except OSError:
        stretch.tail[UNREADABLE] += 1
    return stretch


def _lines(file: BinaryIO, stretch: Stretch) -> Iterator[tuple[bytes | None, bool]]:
    """(line, whether it has an end); None for one that is too long to be held."""
    at = stretch.start
    if at:
        # Whoever has the stretch before this one reads the line that runs into it.
        file.seek(at - 1)
        rest, whole = _rest_of_line(file)
        at += rest - 1
        if whole:
            stretch.end = at
    while at < stretch.stop:
        line = file.readline(MAX_LINE_BYTES)
        if not line:
            return
        at += len(line)
        whole = line.endswith(b"\n")
        if not whole and len(line) == MAX_LINE_BYTES:
            more, whole = _rest_of_line(file)
            at += more
            if whole:
                stretch.end = at
            yield None, whole
            continue
        if whole:
            stretch.end = at
        yield line.strip(), whole


def _rest_of_line(file: BinaryIO) -> tuple[int, bool]:
    """Bytes up to and with the next line end, and whether there is one."""
    size, whole = 0, False
    while not whole and (piece := file.readline(MAX_LINE_BYTES)):
        size += len(piece)
        whole = piece.endswith(b"\n")
    return size, whole
