"""What one row of a log counts: each rule of the fields, and leniency."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.usage.message import Compaction, Message, Part
from octavo.usage.rows import Place, parse
from tests.usage.conftest import OPUS, START, answer, usage

PLACE = Place("from-file", "from-folder", "")


def parsed(row: dict[str, Any]) -> Message:
    found = parse(json.dumps(row).encode(), PLACE)
    assert isinstance(found, Message), found
    return found


def test_a_row_becomes_numbers_names_and_ids() -> None:
    found = parsed(answer("a", 1.5, input=3, m5=10, h1=20, read=400, output=50))
    assert found.main == Part(OPUS, 3, 10, 20, 400, 50)
    assert (found.id, found.time, found.session) == ("a", START + 1.5, "session-1")
    assert (found.project, found.version, found.agent) == ("/home/user/project", "2.1.250", "")
    assert found.context == found.main.prompt == 433
    assert "secret" not in json.dumps(found.as_row())
    assert Message.from_row(json.loads(json.dumps(found.as_row()))) == found


def test_no_message_id_falls_back_to_the_row() -> None:
    assert parsed(answer(None, 2)).id == "uuid-None-2"


def test_an_old_row_takes_names_from_its_file() -> None:
    row = answer("a", row={"sessionId": None, "cwd": None, "version": None, "costUSD": 0.5})
    found = parsed(row)
    assert (found.session, found.project, found.version) == ("from-file", "from-folder", "")


@pytest.mark.parametrize(
    ("counts", "split"),
    [
        (usage(m5=5, h1=7), (5, 7)),
        (usage(write=12), (12, 0)),  # no split: 5 minutes
        (usage(m5=5, h1=7) | {"cache_creation_input_tokens": 20}, (13, 7)),  # the rest too
        (usage(m5=5, h1=7) | {"cache_creation_input_tokens": 0}, (5, 7)),  # the split holds
        (usage(m5=5, h1=7) | {"cache_creation_input_tokens": 9}, (5, 7)),
        (usage(write=12) | {"cache_creation": {}}, (12, 0)),
        (
            {
                "output_tokens": 1,
                "cache_creation_input_tokens": 216_447_883,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 47_745_500,
                    "ephemeral_1h_input_tokens": 168_726_465,
                },
            },
            (47_745_500, 168_726_465),
        ),
    ],
)
def test_writes_are_split_by_their_time_to_live(
    counts: dict[str, Any], split: tuple[int, int]
) -> None:
    found = parsed(answer("a", message={"usage": counts}))
    assert (found.main.write_5m, found.main.write_1h) == split
    assert found.unsplit == int("cache_creation" not in counts)


def test_thinking_is_part_of_the_output() -> None:
    row = answer("a", output=80, output_tokens_details={"thinking_tokens": 60})
    assert parsed(row).main.output == 80


def test_iterations() -> None:
    row = answer(
        "a",
        input=10,
        read=3000,
        output=70,
        iterations=[
            {"type": "message", "input_tokens": 5, "cache_read_input_tokens": 1000},
            {"type": "advisor_message", "model": "claude-sonnet-4", **usage(input=900, output=40)},
            {"type": "compaction", **usage(input=50_000, output=2000)},
            {"type": "fallback_message", **usage(input=1, output=1)},
            {"type": "message", "input_tokens": 5, "cache_read_input_tokens": 2000},
        ],
    )
    found = parsed(row)
    assert found.main == Part(OPUS, 10, 0, 0, 3000, 70)
    assert found.extra == (
        Part("claude-sonnet-4", 900, output=40),
        Part(OPUS, 50_000, output=2000),
    )
    assert found.context == 2005  # the last prompt, not the sum


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"type":"assistant","message":{"usage":{"input_to', "torn"),
        ('"usage" "assistant"', "torn"),
        ("plain words", "torn"),
        ('{"type":"user","message":{}}', "other_rows"),
        ('{"type":"assistant","message":{"id":"x"}}', "other_rows"),
        ('{"type":"never-seen","x":1}', "unknown_type"),
        ('{"x":1}', "unknown_type"),
        ("[" * 100_000 + '"usage" "assistant"', "torn"),
        ('["usage", "assistant"]', "invalid"),
        (json.dumps(answer("a", message={"model": "<synthetic>"})), "synthetic"),
        (json.dumps(answer("a", message={"usage": "assistant"})), "invalid"),
        (json.dumps(answer("a", message={"usage": [1]})), "invalid"),
        (json.dumps(answer("a", row={"message": "assistant usage"})), "other_rows"),
        (json.dumps(answer(None, row={"uuid": 7})), "invalid"),
        (json.dumps(answer("a", input=-1)), "invalid"),
        (json.dumps(answer("a", input=10**10)), "invalid"),
        (json.dumps(answer("a", input=1.5)), "invalid"),
        (json.dumps(answer("a", input=True)), "invalid"),
        (json.dumps(answer("a")).replace('"output_tokens": 100', f'"output_tokens": {"9" * 5000}'),
         "torn"),
        (json.dumps(answer("a", row={"timestamp": "yesterday"})), "invalid"),
        (json.dumps(answer("a", row={"timestamp": None})), "invalid"),
        (json.dumps(answer("a", row={"timestamp": "0001-01-01T00:00:00Z"})), "invalid"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_named(line: str, reason: str) -> None:
    assert parse(line.encode(), PLACE) == reason


def test_text_that_speaks_of_usage_is_not_counted() -> None:
    quoted = json.dumps(answer("a", output=10**6))
    row = {"type": "user", "message": {"content": quoted}, "toolUseResult": {"usage": usage()}}
    assert parse(json.dumps(row).encode(), PLACE) == "other_rows"
    task = {"type": "user", "message": {"role": "assistant"}, "toolUseResult": {"usage": usage()}}
    assert parse(json.dumps(task).encode(), PLACE) == "other_rows"


def test_damaged_characters_take_nothing_from_the_numbers() -> None:
    line = json.dumps(answer("a", output=7)).encode().replace(b"secret", b"\xff\xfe")
    found = parse(line, PLACE)
    assert isinstance(found, Message)
    assert found.main.output == 7


def test_names_cannot_write_to_a_terminal() -> None:
    found = parsed(
        answer("a\x1b[2J", model="\x1b]0;x\x07m\ud800", row={"cwd": "/p\n\x9b31m", "version": 3})
    )
    assert (found.id, found.model, found.project) == ("a[2J", "]0;xm", "/p31m")
    assert len(parsed(answer("x" * 10_000)).id) == 200


def test_compactions() -> None:
    row = answer("a", 9) | {"type": "system", "subtype": "compact_boundary"}
    assert parse(json.dumps(row).encode(), PLACE) == Compaction("session-1", "", START + 9)
    summary = '{"type":"user","isCompactSummary":true,"timestamp":"2026-11-02T09:00:00Z"}'
    assert parse(summary.encode(), PLACE) == Compaction("from-file", "", START)


@pytest.mark.parametrize(
    ("row", "doubtful"),
    [
        (answer("a", output=1, message={"stop_reason": None}), True),
        (answer("a", output=1), False),
        (answer("a", output=50, message={"stop_reason": None}), False),
        (
            answer(
                "a",
                output=50,
                message={"stop_reason": None, "content": [{"type": "text", "text": "x" * 900}]},
            ),
            True,
        ),
    ],
)
def test_placeholders_are_told(row: dict[str, Any], doubtful: bool) -> None:
    assert parsed(row).placeholder is doubtful
