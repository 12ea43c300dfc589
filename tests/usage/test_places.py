"""Where logs are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.core.errors import ConfigError
from octavo.usage.places import log_files, log_roots, place_of
from octavo.usage.rows import Place


def made(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True)


def test_both_usual_roots_and_the_desktop_app(home: Path) -> None:
    usual = [home / ".config" / "claude" / "projects", home / ".claude" / "projects"]
    desktop = home / ".config" / "Claude" / "local-agent-mode-sessions"
    assert log_roots([], {"HOME": str(home)}) == []
    made(*usual)
    assert log_roots([], {"HOME": str(home)}) == usual
    made(desktop)
    assert log_roots([], {"HOME": str(home)}) == [*usual, desktop]


def test_a_configured_root_replaces_the_usual_ones(home: Path, tmp_path: Path) -> None:
    made(home / ".claude" / "projects", tmp_path / "a" / "projects", tmp_path / "b" / "projects")
    setting = f"{tmp_path / 'a'}, {tmp_path / 'b' / 'projects'},"
    found = log_roots([], {"HOME": str(home), "CLAUDE_CONFIG_DIR": setting})
    assert found == [tmp_path / "a" / "projects", tmp_path / "b" / "projects"]
    made(tmp_path / "xdg" / "claude" / "projects")
    found = log_roots([], {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert found == [tmp_path / "xdg" / "claude" / "projects", home / ".claude" / "projects"]


def test_one_folder_by_two_names_is_read_once(tmp_path: Path) -> None:
    made(tmp_path / "real" / "inner")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    given = [tmp_path / "link", tmp_path / "real" / "inner", tmp_path / "real"]
    assert log_roots(given) == [tmp_path / "real"]
    with pytest.raises(ConfigError, match="logs"):
        log_roots([tmp_path / "nothing"])


def test_only_logs_are_found(tmp_path: Path) -> None:
    made(tmp_path / "p" / "s" / "subagents" / "deep" / "er")
    for name in ("a.jsonl", "p/b.jsonl", "p/s/subagents/deep/er/c.jsonl", "p/agent-x.meta.json"):
        (tmp_path / name).write_text("{}\n")
    names = [Path(file.path).name for file in log_files(tmp_path)]
    assert names == ["a.jsonl", "b.jsonl", "c.jsonl"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/r/projects/-p/sess.jsonl", Place("sess", "-p", "")),
        ("/r/projects/-p/sess/subagents/agent-x.jsonl", Place("sess", "-p", "agent-x")),
        ("/r/-p/sess/subagents/workflows/w/agent-y.jsonl", Place("sess", "-p", "agent-y")),
        ("/r/p\udce9\x1b[2J/s\x07.jsonl", Place("s", "p[2J", "")),
        ("/subagents/x.jsonl", Place("x", "subagents", "")),
    ],
)
def test_names_of_files(path: str, place: Place) -> None:
    assert place_of(path) == place
