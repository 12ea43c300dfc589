"""Logs as a coding agent writes them, made by the tests; no home folder but the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from octavo.pricing.api_prices import Layers
from octavo.pricing.price_file import open_price_file
from octavo.usage.ask import Source
from octavo.usage.history import History, collect

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC).timestamp()
OPUS = "claude-opus-4-8"


def stamp(seconds: float) -> str:
    """As logs write it."""
    text = datetime.fromtimestamp(START + seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def usage(**counts: Any) -> dict[str, Any]:
    """A `usage` object; `m5` and `h1` make the nested split, and their sum the total."""
    made: dict[str, Any] = {"input_tokens": 0, "output_tokens": 100}
    if "m5" in counts or "h1" in counts:
        m5, h1 = counts.pop("m5", 0), counts.pop("h1", 0)
        made["cache_creation_input_tokens"] = m5 + h1
        made["cache_creation"] = {"ephemeral_5m_input_tokens": m5, "ephemeral_1h_input_tokens": h1}
    short = {
        "input": "input_tokens",
        "output": "output_tokens",
        "read": "cache_read_input_tokens",
        "write": "cache_creation_input_tokens",
    }
    return made | {short.get(name, name): value for name, value in counts.items()}


def answer(
    key: str | None,
    seconds: float = 0.0,
    *,
    model: str = OPUS,
    row: Mapping[str, Any] | None = None,
    message: Mapping[str, Any] | None = None,
    **counts: Any,
) -> dict[str, Any]:
    """One assistant row. `row` and `message` replace fields of the envelope and the message."""
    return {
        "parentUuid": None,
        "isSidechain": False,
        "cwd": "/home/user/project",
        "sessionId": "session-1",
        "version": "2.1.250",
        "type": "assistant",
        "uuid": f"uuid-{key}-{seconds}",
        "requestId": f"req-{key}",
        "timestamp": stamp(seconds),
        "message": {
            "id": key,
            "model": model,
            "role": "assistant",
            "content": [{"type": "text", "text": "secret words"}],
            "stop_reason": "end_turn",
            "usage": usage(**counts),
            **(message or {}),
        },
        **(row or {}),
    }


def write(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """One line each; a str as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


PRICES = {
    "date": "2026-11-01",
    "models": {
        OPUS: {
            "input": 5, "output": 25, "read": 0.5, "write_5m": 6.25, "write_1h": 10, "search": 0.01
        },
        "claude-sonnet-4": {
            "input": 3, "output": 15, "read": 0.3, "write_5m": 3.75, "write_1h": 6, "search": 0.01
        },
        "claude-sonnet-4-5": {
            "input": 3, "output": 15, "read": 0.3, "write_5m": 3.75, "write_1h": 6,
            "above": {
                "tokens": 200_000,
                "input": 6, "output": 22.5, "read": 0.6, "write_5m": 7.5, "write_1h": 12,
            },
        },
        "claude-haiku-4-5": {
            "input": 1, "output": 5, "read": 0.1, "write_5m": 1.25, "write_1h": 2
        },
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without logs."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "projects"
    folder.mkdir()
    return folder


@pytest.fixture
def price_file(tmp_path: Path) -> Path:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES), encoding="utf-8")
    return path


@pytest.fixture
def prices(price_file: Path) -> Layers:
    """Of the file alone, so that no package's data changes a figure here."""
    return Layers([open_price_file(price_file)])


def read(logs: Path, rows: Sequence[Mapping[str, Any] | str] = ()) -> History:
    """Everything below `logs`, after writing `rows` there; keeps no index."""
    if rows:
        write(logs / "-home-user-project" / "session-1.jsonl", rows)
    return collect([logs], None)


def source_of(logs: Path, prices: Layers, **rest: Any) -> Source:
    return Source(logs=(logs,), prices=prices, index=None, **rest)
