"""Reading files: what is read again, what is not, and what a run leaves behind."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from octavo.core.errors import EngineError
from octavo.usage import gather, history, reading
from octavo.usage.history import collect
from octavo.usage.reading import read as read_stretch
from tests.usage.conftest import answer, read, write


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "data" / "octavo"


@pytest.fixture
def stretches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What is read, by file name, start and stop."""
    seen: list[tuple[str, int, int]] = []

    def spy(path: str, start: int, stop: int) -> reading.Stretch:
        seen.append((Path(path).name, start, stop))
        return read_stretch(path, start, stop)

    monkeypatch.setattr(gather, "read", spy)
    return seen


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_only_what_is_new_is_read(
    logs: Path, index: Path, stretches: list[tuple[str, int, int]]
) -> None:
    one = write(logs / "one.jsonl", [answer("a")])
    write(logs / "two.jsonl", [answer("b", 1)])
    collect([logs], index)
    assert len(stretches) == 2
    stretches.clear()
    assert len(collect([logs], index).messages) == 2
    assert stretches == []
    size = one.stat().st_size
    append(one, json.dumps(answer("c", 2)) + "\n")
    assert len(collect([logs], index).messages) == 3
    assert stretches == [("one.jsonl", size, one.stat().st_size)]


def test_a_file_written_anew_is_read_anew(logs: Path, index: Path) -> None:
    path = write(logs / "one.jsonl", [answer("a"), "broken"])
    assert collect([logs], index).skipped == {"torn": 1}
    write(path, [answer("b"), answer("c", 1), answer("d", 2)])
    found = collect([logs], index)
    assert [one.id for one in found.messages] == ["a", "b", "c", "d"]  # what was spent stays spent
    assert found.skipped == {}
    write(path, [answer("b")])  # shorter
    assert len(collect([logs], index).messages) == 4


def test_a_torn_last_line_is_read_when_it_is_whole(logs: Path, index: Path) -> None:
    line = json.dumps(answer("b", 1, output=77))
    path = write(logs / "one.jsonl", [answer("a")])
    append(path, line[:90])
    for _ in range(2):
        found = collect([logs], index)
        assert (len(found.messages), found.skipped) == (1, {"torn": 1})
    append(path, line[90:])
    found = collect([logs], index)  # complete, though without its line end
    assert (len(found.messages), found.skipped) == (2, {})
    append(path, "\n" + json.dumps(answer("c", 2)) + "\n")
    assert len(collect([logs], index).messages) == 3


@pytest.mark.parametrize("size", [1, 7, 500, 10**6])
def test_stretches_meet_without_gap_or_overlap(
    logs: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    rows = [*(answer(f"{i}", i) for i in range(20)), "broken", "", answer("last", 99)]
    path = write(logs / "one.jsonl", rows)
    if size > 1:
        monkeypatch.setattr(gather, "STRETCH_BYTES", size)
        found = collect([logs], None)
        assert (len(found.messages), found.skipped) == (21, {"torn": 1})
        return
    n_bytes = path.stat().st_size
    ends = sum(len(read_stretch(str(path), at, at + 1).messages) for at in range(n_bytes))
    assert ends == 21


def test_several_processes_count_as_one(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(6):
        rows = [answer(f"{i}-{k}", k, row={"cwd": "/häuser/\udce9"}) for k in range(30)]
        write(logs / f"p{i}" / f"s{i}.jsonl", [*rows, "broken"])
    alone = collect([logs], None)
    seen: list[int] = []

    def progress(total: int) -> history.Advance:
        seen.append(-total)
        return seen.append

    monkeypatch.setattr(gather, "ALONE_BYTES", 0)
    monkeypatch.setattr(gather, "STRETCH_BYTES", 4000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    found = collect([logs], None, progress=progress)
    assert found.messages == alone.messages
    assert found.skipped == alone.skipped == {"torn": 6}
    assert sum(seen) == 0


def test_a_reader_that_dies_is_told(
    logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(logs / "one.jsonl", [answer("a")])
    write(logs / "two.jsonl", [answer("b")])
    monkeypatch.setattr(gather, "ALONE_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    for dying in ("exit 1", "read line; echo '[\"cut o'"):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{dying}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        with pytest.raises(EngineError, match="ended early"):
            collect([logs], None)


def test_a_torn_line_that_runs_through_stretches_is_read_when_it_is_whole(
    logs: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "STRETCH_BYTES", 200)
    line = json.dumps(answer("b", 1))
    path = write(logs / "one.jsonl", [answer("a")])
    append(path, line[:-9])
    assert len(collect([logs], index).messages) == 1
    append(path, line[-9:] + "\n")
    found = collect([logs], index)
    assert ([one.id for one in found.messages], found.skipped) == (["a", "b"], {})


def test_a_file_that_could_not_be_opened_is_tried_again(
    logs: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(logs / "one.jsonl", [answer("a")])

    def refuse(*arguments: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(reading, "open", refuse, raising=False)
        assert collect([logs], index).skipped == {"unreadable_file": 1}
    found = collect([logs], index)  # its size and time are what they were
    assert (len(found.messages), found.skipped) == (1, {})


def test_lines_beyond_the_limit_are_counted(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 2000)
    long = answer("long", message={"content": [{"type": "text", "text": "x" * 9000}]})
    found = read(logs, [answer("a"), long, answer("b", 1)])
    assert [one.id for one in found.messages] == ["a", "b"]
    assert found.skipped == {"too_long": 1}


def test_files_that_cannot_be_read_are_counted(logs: Path) -> None:
    (logs / "folder.jsonl").mkdir()
    os.mkfifo(logs / "pipe.jsonl")
    (logs / "gone.jsonl").symlink_to("nowhere")
    found = read(logs, [answer("a")])
    assert len(found.messages) == 1
    assert found.files == 1


def test_the_index_is_private_and_holds_no_text(logs: Path, index: Path) -> None:
    write(logs / "one.jsonl", [answer("a", message={"content": [{"text": "canary-7f3a"}]})])
    collect([logs], index)
    (path,) = index.glob("*.sqlite")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(index.stat().st_mode) == 0o700
    assert all(b"canary" not in one.read_bytes() for one in index.iterdir())


def test_each_root_has_an_index(tmp_path: Path, index: Path) -> None:
    roots = [tmp_path / "r1", tmp_path / "r2"]
    for i, root in enumerate(roots):
        write(root / "s.jsonl", [answer("both", output=5 + i), answer(f"own-{i}", 1)])
    assert [one.id for one in collect([roots[0]], index).messages] == ["both", "own-0"]
    found = collect(roots, index).messages
    assert [(one.id, one.main.output) for one in found] == [
        ("both", 6), ("own-0", 100), ("own-1", 100)
    ]  # fmt: skip


def test_an_index_that_is_damaged_inside_is_told_and_done_without(logs: Path, index: Path) -> None:
    write(logs / "one.jsonl", [answer(f"{i}", i) for i in range(900)])
    expected = collect([logs], index)
    (path,) = index.glob("*.sqlite")
    whole = path.read_bytes()
    path.write_bytes(whole[:12_288] + b"\x5a" * (len(whole) - 12_288))
    found = collect([logs], index)
    assert (found.messages, found.files) == (expected.messages, 1)
    assert "read anew" in found.notes[0]


def test_a_path_need_not_be_utf_8(logs: Path, index: Path, stretches: list[object]) -> None:
    folder = os.fsencode(logs) + b"/caf\xe9"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    with open(folder + b"/one.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(answer("a", row={"cwd": None})) + "\n")
    for _ in range(2):
        (one,) = collect([logs], index).messages
        assert one.project == "caf"
    assert len(stretches) == 1  # known again


@pytest.mark.parametrize("kind", ["garbage", "newer", "no folder"])
def test_an_index_that_cannot_be_used_is_told_and_done_without(
    logs: Path, index: Path, kind: str
) -> None:
    write(logs / "one.jsonl", [answer("a")])
    collect([logs], index)
    (path,) = index.glob("*.sqlite")
    if kind == "garbage":
        path.write_bytes(b"no database" * 1000)
    elif kind == "newer":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version=99")
        connection.close()
    else:
        index = path  # a file where the folder should be
    found = collect([logs], index)
    assert len(found.messages) == 1
    assert "cannot be used" in found.notes[0]
