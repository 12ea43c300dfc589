"""The key that a client command sends to a server: a secret, so it comes from the environment."""

from __future__ import annotations

import os

from octavo.core.errors import ConfigError

API_KEY = "OCTAVO_API_KEY"


def key_headers() -> dict[str, str]:
    """Headers with the key of a protected server; none where the variable is not set. Raises
    ConfigError for a key that no header can hold."""
    key = os.environ.get(API_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{API_KEY}: a key has only printable ASCII characters", param=API_KEY)
    return {"Authorization": f"Bearer {key}"} if key else {}
