"""Sessions as traces without text: times, lengths and block ids. Owns the format, both ways.

The format is that of public coding-agent traces: one object a session with `block_size` and
`requests` of {t, in, out, hash_ids}; equal ids at the beginning mean equal tokens. Ids are local to
the session.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.core.errors import ConfigError
from octavo.usage.message import Message, Part
from octavo.usage.rows import MAX_TOKENS, printable
from octavo.usage.turns import Turn

BLOCK_TOKENS = 64
MAX_FILE_BYTES = 1 << 30
MAX_BLOCK_TOKENS = 1 << 20
MAX_SECONDS = 1e9
LINES = ".jsonl"


def exported(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """A trace for each chain of requests, numbered: names stay behind.

    What was read begins with the ids of the request before; so does what would have been read had
    the cache not run out. All else has new ids.
    """
    made: dict[str, Any] | None = None
    chain: tuple[str, str] | None = None
    ids: list[int] = []
    fresh = number = 0
    start = last = 0.0
    for turn in turns:
        message, main = turn.message, turn.message.main
        if made is None or message.chain != chain:
            if made is not None:
                yield made
            number += 1
            chain, ids, fresh, start = message.chain, [], 0, message.time
            last = start
            made = _head(number)
        shared = min(len(ids), turn.reusable // BLOCK_TOKENS)
        wanted = -(-main.prompt // BLOCK_TOKENS)
        added = max(0, wanted - shared)
        ids = [*ids[:shared], *range(fresh + 1, fresh + added + 1)][:wanted]
        fresh += added
        made["models"] = sorted({*made["models"], message.model})
        made["requests"].append(
            {
                "t": round(message.time - start, 3),
                "type": "n",
                "model": message.model,
                "in": main.prompt,
                "out": main.output,
                "hash_ids": ids,
                "think_time": round(max(0.0, message.time - last), 3),
            }
        )
        last = message.time
    if made is not None:
        yield made


def _head(number: int) -> dict[str, Any]:
    return {
        "id": f"session-{number:04d}",
        "models": [],
        "block_size": BLOCK_TOKENS,
        "hash_id_scope": "local",
        "requests": [],
    }


def write_traces(traces: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Into one file with a trace a line (.jsonl), else into a folder with a file for each.

    Returns how many. Raises ConfigError if they cannot be written.
    """
    count = 0
    try:
        if path.suffix == LINES:
            with path.open("w", encoding="utf-8") as file:
                for trace in traces:
                    file.write(_compact(trace) + "\n")
                    count += 1
            return count
        path.mkdir(exist_ok=True)
        for trace in traces:
            text = _compact(trace) + "\n"
            (path / f"{trace['id']}.json").write_text(text, encoding="utf-8")
            count += 1
    except OSError as error:
        raise ConfigError(f"{str(path)!a} cannot be written: {error.strerror}") from None
    return count


def _compact(trace: Mapping[str, Any]) -> str:
    return json.dumps(trace, separators=(",", ":"))


def read_traces(paths: Sequence[Path], *, start: float) -> list[Message]:
    """Requests of the traces in files (.json, .jsonl) or folders of them, as of `start`.

    Nothing is ever forgotten: a block that begins the prompt as it began an earlier one of its
    session is read; all others are written for 5 minutes. Traces of one name are sessions of their
    own: exports number them alike. Raises ConfigError for what is no trace.
    """
    messages: list[Message] = []
    names: Counter[str] = Counter()
    for file in (file for path in paths for file in _files(path)):
        try:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise ConfigError(f"{file.name!a}: a trace file has at most 1 GiB")
            text = file.read_text(encoding="utf-8")
            lines = text.splitlines() if file.suffix == LINES else [text]
            for line in lines:
                messages += _replayed(json.loads(line), printable(file.stem), start, names)
        except OSError as error:
            raise ConfigError(f"{file.name!a} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError, _NoTrace) as error:
            why = str(error) if isinstance(error, _NoTrace) else "it is not JSON"
            raise ConfigError(f"{file.name!a} is no trace: {why}") from None
    return messages


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(one for one in path.iterdir() if one.suffix in (".json", LINES))
    return [path]


class _NoTrace(Exception):
    """Says which field is wrong."""


def _replayed(trace: Any, name: str, start: float, names: Counter[str]) -> Iterator[Message]:
    if not isinstance(trace, dict):
        raise _NoTrace("it must be an object")
    size = _whole(trace, "block_size", MAX_BLOCK_TOKENS) or BLOCK_TOKENS
    requests = trace.get("requests")
    if not isinstance(requests, list):
        raise _NoTrace("requests must be a list")
    session = printable(str(trace.get("id", name))) or "unnamed"
    names[session] += 1
    if names[session] > 1:
        session += f" ({names[session]})"
    models = trace.get("models")
    usual = printable(next(iter(models if isinstance(models, list) else []), "")) or "unknown"
    seen: set[tuple[int, int]] = set()  # (block id, its place): prefixes that were sent before
    for i, one in enumerate(requests):
        if not isinstance(one, dict):
            raise _NoTrace("requests must hold objects")
        prompt, output = _whole(one, "in", MAX_TOKENS), _whole(one, "out", MAX_TOKENS)
        ids = one.get("hash_ids", [])
        if not isinstance(ids, list) or not all(isinstance(block, int) for block in ids):
            raise _NoTrace("hash_ids must be a list of whole numbers")
        read = min(prompt, _known(ids, seen) * size)
        model = printable(one.get("model")) or usual
        yield Message(
            id=f"{session}/{i}",
            time=start + _seconds(one),
            session=session,
            project=name,
            agent="",
            version="",
            sidechain=0,
            stopped=1,
            unsplit=0,
            shown_chars=0,
            context=prompt,
            speed="",
            geo="",
            service_tier="",
            main=Part(model, write_5m=prompt - read, read=read, output=output),
        )
        seen.update((block, place) for place, block in enumerate(ids))


def _known(ids: list[int], seen: set[tuple[int, int]]) -> int:
    """Blocks of the prompt's beginning that were sent before. Ids name prefixes: equal ones at
    equal places have equal tokens before them."""
    return next((i for i, one in enumerate(ids) if (one, i) not in seen), len(ids))


def _whole(values: Mapping[str, Any], name: str, most: int) -> int:
    value = values.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _NoTrace(f"{name} must be a whole number from 0 to {most}")
    return value


def _seconds(values: Mapping[str, Any]) -> float:
    value = values.get("t", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _NoTrace("t must be a number")
    if not 0 <= value <= MAX_SECONDS:  # nor is NaN
        raise _NoTrace(f"t must be from 0 to {MAX_SECONDS:g} seconds")
    return float(value)
