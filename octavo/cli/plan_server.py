"""Asks a running server for its model and its metrics, for `octavo plan --server`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from octavo.core.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import httpx

    from octavo.plan.live import Observed

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 8 << 20
MAX_NAME_CHARS = 200


def observe(url: str, *, transport: httpx.BaseTransport | None = None) -> Observed:
    """Raises ConfigError for a wrong URL and EngineError where no such server answers."""
    import httpx

    from octavo.cli.server_key import key_headers
    from octavo.plan.live import observed

    try:
        where = urlsplit(url)
        good = where.scheme in ("http", "https") and bool(where.hostname) and where.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"server is {url[:80]!a}; give it as http://127.0.0.1:8000", param="server"
        )
    limits = httpx.Timeout(TIMEOUT_SECONDS)
    headers = key_headers()
    # No proxy of the environment: the key is for this server alone.
    with httpx.Client(
        timeout=limits, transport=transport, trust_env=False, headers=headers
    ) as client:
        models = _text(client, url, "/v1/models")
        metrics = _text(client, url, "/metrics")
    return observed(metrics, _first_model(models))


def _text(client: httpx.Client, url: str, path: str) -> str:
    """The body of one answer, at most MAX_ANSWER_BYTES."""
    import httpx

    body = bytearray()
    try:
        with client.stream("GET", url.rstrip("/").removesuffix("/v1") + path) as answer:
            if answer.status_code != 200:
                raise EngineError(f"the server answers {answer.status_code} to {path}")
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise EngineError(f"the server's {path} is larger than {MAX_ANSWER_BYTES} B")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(f"no server answers: {type(error).__name__}") from None
    return body.decode(errors="replace")


def _first_model(text: str) -> str:
    try:
        name = json.loads(text)["data"][0]["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise EngineError("the server's /v1/models names no model") from None
    # It is shown in a terminal and looked up as a model.
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise EngineError("the server's /v1/models names no model")
    return name
