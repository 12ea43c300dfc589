"""`octavo serve`: what it announces, and that it refuses before it loads."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.cli import serve as command
from octavo.cli.pull import bytes_on_disk
from octavo.server import listen
from octavo.server.access.guard import LOOPBACK
from tests.cli.conftest import Result
from tests.server.fake_engine import FakeEngine, FakeInfo

Run = Callable[..., Result]


def test_announcement() -> None:
    url = "http://127.0.0.1:8000"
    text = "\n".join(command.announcement(FakeInfo(), url, protected=False))
    assert "Octavo serves fake-model at http://127.0.0.1:8000/v1" in text
    assert "not taken: fast: not built" in text
    assert "100 blocks of 16 tokens: 1,600 tokens fit, 1.6 MiB (1.0 KiB a token" in text
    assert "100 blocks of 16 KiB = 1.6 MiB" in text
    assert "sampling no defaults of the model" in text
    words = shlex.split(text[text.index("curl") :].replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "fake-model"
    assert words[1] == "http://127.0.0.1:8000/v1/chat/completions"
    assert "Bearer" not in text
    assert "Authorization: Bearer" in "\n".join(
        command.announcement(FakeInfo(), url, protected=True)
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("::", "http://[::1]:80"),
        ("box.local", "http://box.local:80"),
    ],
)
def test_address(host: str, url: str) -> None:
    assert command.address(host, 80) == url


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_serving(
    octavo: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, is_open: bool
) -> None:
    calls: list[Any] = []

    def serve(app: Any, listener: Any, *, started: Callable[[], None], **parts: Any) -> None:
        calls.append(next(m for m in app.user_middleware if m.cls.__name__ == "Guard").kwargs)
        started()

    monkeypatch.setattr(command, "load_engine", lambda config: FakeEngine())
    monkeypatch.setattr(listen, "serve", serve)
    flags = ["--allow-unauthenticated"] if is_open else []
    flags += ["--data-dir", str(tmp_path)]
    done = octavo("serve", "m", "--port", "0", "--host", host, *flags)
    assert done.code == 0
    assert done.out.startswith("Octavo serves fake-model at http://127.0.0.1:")
    assert done.out.endswith("Stopped.\n")
    assert calls[0]["hosts"] == (None if is_open else LOOPBACK)
    assert ("no API keys" in done.err) is is_open


def test_a_taken_port_is_found_before_loading(octavo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(command, "load_engine", loaded.append)
    with listen.bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        done = octavo("serve", "--port", str(port))
    assert (done.code, done.out, loaded) == (2, "", [])
    assert done.err == f"octavo: Port {port} is in use; choose another with --port.\n"


def test_pull_prints_path_and_size(
    octavo: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"x" * 1024)
    (tmp_path / "b").write_bytes(b"x" * 1024)
    monkeypatch.setattr("octavo.compute.hub.resolve", lambda model: tmp_path / model)
    assert octavo("pull", "sub").out == f"{tmp_path / 'sub'} (1.0 KiB)\n"
    assert octavo("pull", "b").out == f"{tmp_path / 'b'} (1.0 KiB)\n"
    assert bytes_on_disk(tmp_path) == 2048


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--log-format", "xml"), "--log-format must be one of text, json"),
        (("--log-level", "trace"), "--log-level must be one of debug, info, warning, error"),
        (("--price-input", "1"), "prices were given without --price-output; set it"),
        (("--price-cache-read", "1", "--price-output", "2"), "without --price-input"),
        (("--price-input", "nan", "--price-output", "2"), "--price-input must be from 0 to"),
        (("--price-input", "1", "--price-output", "-2"), "--price-output must be from 0 to"),
    ],
)
def test_bad_telemetry_options_are_found_before_loading(
    octavo: Run, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], message: str
) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(command, "load_engine", loaded.append)
    done = octavo("serve", "--port", "0", *flags)
    assert (done.code, loaded) == (2, [])
    assert message in done.err


def test_the_ledger_lies_in_the_folder_for_users_data(
    octavo: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def serve(app: Any, listener: Any, **parts: Any) -> None:
        del app, listener, parts

    made: list[Path] = []
    monkeypatch.setattr("octavo.server.telemetry.ledger.Ledger", made.append)
    monkeypatch.setattr(command, "load_engine", lambda config: FakeEngine())
    monkeypatch.setattr(listen, "serve", serve)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert octavo("serve", "m", "--port", "0").code == 0
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert octavo("serve", "m", "--port", "0").code == 0
    assert octavo("serve", "m", "--port", "0", "--no-ledger").code == 0
    assert made == [tmp_path / "octavo", tmp_path / "home" / ".local" / "share" / "octavo"]
