"""A process that reads stretches of logs for another one: `python -m octavo.usage.worker`.

A line of JSON in ([path, start, stop]), a line of JSON out. Standard library only.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from typing import Any

from octavo.usage.message import Compaction, Message
from octavo.usage.reading import Stretch, read


def as_json(stretch: Stretch) -> str:
    """One line."""
    return json.dumps(
        [
            stretch.path,
            stretch.start,
            stretch.stop,
            stretch.end,
            [one.as_row() for one in stretch.messages.values()],
            list(stretch.compactions),
            stretch.skipped,
            stretch.tail,
        ]
    )


def from_json(text: str) -> Stretch:
    """The other way."""
    path, start, stop, end, messages, compactions, skipped, tail = json.loads(text)
    made = [Message.from_row(row) for row in messages]
    return Stretch(
        path,
        start,
        stop,
        end,
        {one.id: one for one in made},
        {Compaction(*one) for one in compactions},
        Counter(skipped),
        Counter(tail),
    )


def main() -> int:
    # Ctrl-C reaches every process of a terminal; whoever started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        task: Any = json.loads(line)
        print(as_json(read(*task)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
