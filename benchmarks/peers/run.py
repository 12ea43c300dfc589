"""Let Octavo and its peers take turns: `python -m benchmarks.peers.run [--rounds N] [PEER ...]`.

Peers are llama.cpp, openvino and vllm; all of them by default.
"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

from benchmarks.peers import place
from benchmarks.peers.entry import ENTRIES, Entry
from benchmarks.peers.table import full
from benchmarks.peers.turn import Turn, take
from benchmarks.record import save

PEERS = tuple(dict.fromkeys(e.engine.lower() for e in ENTRIES if e.environment != place.OURS))


def order(entries: list[Entry], round_number: int) -> list[Entry]:
    """Each round begins with another engine, so that none always follows the same one."""
    shift = round_number % len(entries)
    return entries[shift:] + entries[:shift]


def figures(turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """Per entry and case the median, with the least and the greatest sample."""
    result: dict[str, Any] = {}
    for title, taken in turns.items():
        result[title] = {"version": taken[0].version}
        for name in taken[0].samples:
            values = [value for turn in taken for value in turn.samples[name]]
            result[title][name] = {
                "median": round(statistics.median(values), 2),
                "least": round(min(values), 2),
                "greatest": round(max(values), 2),
            }
    return result


def chosen(peers: list[str], parser: argparse.ArgumentParser) -> list[Entry]:
    """The entries of Octavo and of `peers`, all of them installed."""
    if unknown := sorted(set(peers) - set(PEERS)):
        parser.error(f"no peer {unknown[0]!a}; there are {', '.join(PEERS)}")
    entries = [e for e in ENTRIES if e.environment == place.OURS or e.engine.lower() in peers]
    for entry in entries:
        needed = (place.python(entry.environment), place.model(entry.model))
        if not all(path.exists() for path in needed):
            parser.error(
                f"{entry.title} is not installed: run python -m benchmarks.peers.setup, or name "
                "the peers to run"
            )
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--because", default="it was not asked for", help="why others are left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    peers = arguments.peers or list(PEERS)
    entries = chosen(peers, parser)
    measured: dict[str, Any] = {
        "threads": arguments.threads,
        "load before": round(os.getloadavg()[0], 1),
        "left out": {p: arguments.because for p in PEERS if p not in peers},
    }
    turns: dict[str, list[Turn]] = {entry.title: [] for entry in entries}
    for round_number in range(arguments.rounds):
        for entry in order(entries, round_number):
            turns[entry.title].append(take(entry, round_number, arguments.threads))
        measured |= {"rounds": round_number + 1, "engines": figures(turns)}
        save("peers", measured, module="benchmarks.peers.run")  # a later round may fail
    print(full(measured))


if __name__ == "__main__":
    main()
