"""`octavo keys new`, and the flags of `octavo serve` about who may ask and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from octavo.cli import serve as command
from octavo.cli.serve_options import BOUNDS
from octavo.server import listen
from octavo.server.access.keys import Keyring, read_keys
from octavo.server.limits import ServerLimits
from tests.cli.conftest import Result
from tests.server.fake_engine import FakeEngine

Run = Callable[..., Result]


def test_a_new_key_is_shown_once_and_its_hash_kept(octavo: Run, tmp_path: Path) -> None:
    done = octavo("keys", "new", "--id", "alice", "--scope", "infer", "--scope", "admin")
    assert done.code == 0
    secret = done.err.split()[-1]
    assert secret not in done.out
    path = tmp_path / "keys"
    path.write_text(done.out)
    key = Keyring(read_keys(path)).find(secret.encode())
    assert key is not None
    assert (key.id, key.scopes) == ("alice", {"infer", "admin"})


def test_a_key_without_more_may_infer(octavo: Run) -> None:
    words = octavo("keys", "new").out.split()
    assert words[0].startswith("key-")
    assert words[1] == "infer"


@pytest.mark.parametrize("flags", [("--scope", "all"), ("--id", "a b"), ("--id", "")])
def test_a_key_that_cannot_be(octavo: Run, flags: tuple[str, ...]) -> None:
    done = octavo("keys", "new", *flags)
    assert (done.code, done.out) == (2, "")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `serve` hands on, without serving."""
    parts: dict[str, Any] = {}

    def serve(app: Any, listener: Any, **more: Any) -> None:
        parts.update(more, app=app)

    monkeypatch.delenv("OCTAVO_API_KEY", raising=False)
    monkeypatch.setattr(command, "load_engine", lambda config: FakeEngine())
    monkeypatch.setattr(listen, "serve", serve)
    return parts


def keyring(kept: dict[str, Any]) -> Keyring:
    (auth,) = (each for each in kept["app"].user_middleware if each.cls.__name__ == "Auth")
    ring: Keyring = auth.kwargs["keyring"]
    return ring


def test_beyond_loopback_without_keys_is_refused_before_loading(
    octavo: Run, kept: dict[str, Any]
) -> None:
    done = octavo("serve", "m", "--port", "0", "--host", "0.0.0.0")
    assert done.code == 2
    assert "--allow-unauthenticated" in done.err
    assert not kept


def test_keys_open_it_without_a_warning(
    octavo: Run, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text(octavo("keys", "new", "--id", "alice").out)
    monkeypatch.setenv("OCTAVO_API_KEY", "first-secret second-secret")
    done = octavo("serve", "m", "--port", "0", "--host", "0.0.0.0", "--keys-file", str(path))
    assert done.code == 0, done.err
    assert "no API keys" not in done.err
    ring = keyring(kept)
    assert ring.n_owners == 3
    assert ring.find(b"second-secret") is not None


def test_on_loopback_no_key_is_needed(octavo: Run, kept: dict[str, Any]) -> None:
    assert octavo("serve", "m", "--port", "0").code == 0
    assert not keyring(kept)


def test_every_bound_reaches_the_limits(octavo: Run, kept: dict[str, Any]) -> None:
    assert set(BOUNDS) <= {each.name for each in fields(ServerLimits)}
    octavo("serve", "m", "--port", "0")
    assert kept["limits"] == ServerLimits()
    for number, (name, (flag, *_)) in enumerate(BOUNDS.items(), start=1):
        value = 0.25 if name == "key_share" else number
        assert octavo("serve", "m", "--port", "0", f"--{flag}", str(value)).code == 0
        assert getattr(kept["limits"], name) == value


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "99999999"])
def test_a_bound_that_is_none(octavo: Run, kept: dict[str, Any], value: str) -> None:
    assert octavo("serve", "m", "--port", "0", "--queue-timeout", value).code == 2
    assert not kept
