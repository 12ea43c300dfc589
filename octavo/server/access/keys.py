"""API keys: how they are made, kept as hashes, and found again. Knows no HTTP and no routes.

A keys file has one key per line, `id scope[,scope] sha256:hex`; lines that begin with # are notes.
Two lines may have the same id, so that a key can be replaced while the old one is still in use.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from octavo.core.errors import ConfigError

Scope = Literal["infer", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "oct-"
SECRET_BYTES = 32
MIN_SECRET_CHARS = 8
MAX_KEYS = 10_000
MAX_FILE_BYTES = 4 << 20
ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
DIGEST_PATTERN = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as it is kept. Its id may be shown, and names its owner in logs and accounts."""

    id: str
    scopes: frozenset[Scope]
    digest: bytes

    @classmethod
    def of(cls, key_id: str, secret: str, scopes: Iterable[Scope]) -> ApiKey:
        return cls(key_id, frozenset(scopes), digest_of(secret.encode("utf-8", "surrogateescape")))

    def line(self) -> str:
        """Its line of a keys file."""
        scopes = ",".join(scope for scope in SCOPES if scope in self.scopes)
        return f"{self.id} {scopes} sha256:{self.digest.hex()}"


class Keyring:
    """The keys that a server knows. An empty one asks nobody for a key."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self._keys = tuple(keys)
        self.n_owners = len({key.id for key in keys if "infer" in key.scopes})

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, secret: bytes) -> ApiKey | None:
        """The key, compared with every one in a time that tells nothing of where they differ."""
        digest = digest_of(secret)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def digest_of(secret: bytes) -> bytes:
    """SHA-256. Keys of 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret).digest()


def new_secret() -> str:
    """A key of 256 random bits, in characters that need no quoting."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def checked_id(key_id: str) -> str:
    """`key_id`, or ConfigError: it stands in logs, in accounts and before a cache salt."""
    if not ID_PATTERN.fullmatch(key_id):
        raise ConfigError(
            "a key's id has 1 to 64 letters, digits, dots, dashes and underscores", param="id"
        )
    return key_id


def checked_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Scopes by name. Raises ConfigError for a name that is none, and for no names."""
    known = {name: name for name in SCOPES}
    wanted = list(names)
    if not wanted or any(name not in known for name in wanted):
        raise ConfigError(f"a key's scopes are some of {', '.join(SCOPES)}", param="scope")
    return frozenset(known[name] for name in wanted)  # type: ignore[index]


def given_keys(given: Sequence[str]) -> list[ApiKey]:
    """Keys given on the command line or in the environment: they may only infer."""
    keys = []
    for number, secret in enumerate(given, start=1):
        if len(secret) < MIN_SECRET_CHARS or not (secret.isascii() and secret.isprintable()):
            raise ConfigError(
                f"an API key has at least {MIN_SECRET_CHARS} printable ASCII characters; "
                "`octavo keys new` makes a good one",
                param="api_key",
            )
        keys.append(ApiKey.of(f"api-key-{number}", secret, ("infer",)))
    return keys


def read_keys(path: Path) -> list[ApiKey]:
    """The keys of a file. Raises ConfigError naming the line, never what is in it."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        message = f"cannot read the keys file {str(path)!r}: {error.strerror}"
        raise ConfigError(message, param="keys_file") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"the keys file has more than {MAX_FILE_BYTES} bytes", param="keys_file")
    lines = raw.decode("utf-8", "replace").splitlines()
    keys = [
        read_line(line, number)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys or len(keys) > MAX_KEYS:
        message = f"the keys file has {len(keys)} keys; it needs 1 to {MAX_KEYS}"
        raise ConfigError(message, param="keys_file")
    return keys


def read_line(line: str, number: int) -> ApiKey:
    """One line of a keys file."""
    words = line.split()
    digest = DIGEST_PATTERN.fullmatch(words[2]) if len(words) == 3 else None
    if digest is None or not ID_PATTERN.fullmatch(words[0]):
        raise ConfigError(
            f"line {number} of the keys file is not `id scope[,scope] sha256:hex`, as "
            "`octavo keys new` prints it",
            param="keys_file",
        )
    try:
        scopes = checked_scopes(words[1].split(","))
    except ConfigError as error:
        message = f"line {number} of the keys file: {error.message}"
        raise ConfigError(message, param="keys_file") from None
    return ApiKey(words[0], scopes, bytes.fromhex(digest[1]))
