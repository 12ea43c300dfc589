"""Keys: made, kept as hashes, read from a file, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.core.errors import ConfigError
from octavo.server.access.keys import (
    MAX_FILE_BYTES,
    ApiKey,
    Keyring,
    checked_id,
    checked_scopes,
    given_keys,
    new_secret,
    read_keys,
)


def test_a_key_survives_its_line(tmp_path: Path) -> None:
    secret = new_secret()
    key = ApiKey.of("alice", secret, ("admin", "infer"))
    assert secret not in key.line()
    assert key.line().startswith("alice infer,admin sha256:")
    path = tmp_path / "keys"
    path.write_text(f"# a note\n\n{key.line()}\n")
    assert read_keys(path) == [key]
    assert Keyring([key]).find(secret.encode()) == key
    assert Keyring([key]).find(secret.encode() + b"x") is None
    assert len({new_secret() for _ in range(100)}) == 100


def test_an_empty_ring_is_false_and_knows_nobody() -> None:
    assert not Keyring()
    assert Keyring().find(b"") is None


def test_two_keys_of_one_owner(tmp_path: Path) -> None:
    old, new = (ApiKey.of("alice", name * 8, ("infer",)) for name in "on")
    scraper = ApiKey.of("scraper", "s" * 8, ("metrics",))
    ring = Keyring([old, new, scraper])
    assert ring.n_owners == 1
    assert ring.find(b"o" * 8) == old
    assert ring.find(b"n" * 8) == new


@pytest.mark.parametrize(
    "line",
    [
        "alice infer",
        "alice infer sha256:1234",
        f"alice infer sha256:{'g' * 64}",
        f"alice infer,all sha256:{'a' * 64}",
        f"alice , sha256:{'a' * 64}",
        f"al/ice infer sha256:{'a' * 64}",
        f"{'a' * 65} infer sha256:{'a' * 64}",
        f"alice infer sha256:{'a' * 64} more",
        "\x00\x00",
    ],
)
def test_a_line_that_is_none(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# a note\n{line}\n")
    with pytest.raises(ConfigError, match="line 2 of the keys file") as caught:
        read_keys(path)
    assert caught.value.param == "keys_file"
    assert line not in caught.value.message


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(ConfigError, match="cannot read"):
        read_keys(path)
    path.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="has 0 keys"):
        read_keys(path)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_keys(path)


def test_given_keys_may_only_infer() -> None:
    keys = given_keys(["one-secret", "two-secret"])
    assert [(key.id, key.scopes) for key in keys] == [
        ("api-key-1", frozenset({"infer"})),
        ("api-key-2", frozenset({"infer"})),
    ]
    for weak in ("", "short", "with\nnewline", "schlüssel-eins"):
        with pytest.raises(ConfigError, match="at least 8 printable"):
            given_keys([weak])


def test_names_and_scopes_are_checked() -> None:
    for wrong in ("", "a b", "a/b", "x" * 65, "a\n"):
        with pytest.raises(ConfigError):
            checked_id(wrong)
    for names in ([], ["all"], ["infer", ""]):
        with pytest.raises(ConfigError, match="infer, metrics, admin"):
            checked_scopes(names)
