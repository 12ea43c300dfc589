"""One streamed completion over HTTP, timed piece by piece. Knows OpenAI's wire format.

It works with any server that takes token ids as a prompt, `ignore_eos` and `include_usage`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

from octavo.bench.datasets import Prompt
from octavo.bench.record import Record
from octavo.core.errors import ConfigError, OctavoError

CONNECT_SECONDS = 10.0
MAX_REASON_CHARS = 200
MAX_COUNT = 1 << 40


class BadAnswer(OctavoError):
    """The server answered with an error, or with what is not a completion."""


class Client:
    """A server at `base_url`. `model` None takes the first one that it names."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        timeout_seconds: float = 600.0,
        clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = checked_url(base_url)
        self.model = model
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            transport=transport,
            trust_env=False,  # what is measured is the server, not a proxy on the way
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def greet(self) -> None:
        """Ask for the models: the server is there, and the model is one of them.

        Raises ConfigError naming what to change.
        """
        try:
            answer = await self._http.get(f"{self._base_url}/v1/models")
            answer.raise_for_status()
            names = [str(one["id"]) for one in answer.json()["data"]]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"no model server answers at {self._base_url} ({type(error).__name__}); start one "
                "with octavo serve, or give another --base-url",
                param="base_url",
            ) from None
        if not names or (self.model is not None and self.model not in names):
            served = ", ".join(map(printable, names)) or "no model"
            raise ConfigError(
                f"the server at {self._base_url} has {served}; give one of these as "
                "--served-model-name",
                param="served_model_name",
            )
        self.model = self.model or names[0]

    async def ask(self, prompt: Prompt) -> Record:
        """Send one request and see it to its end. What goes wrong is the record's `error`."""
        record = Record(prompt_tokens=len(prompt.token_ids), sent_at=self._clock())
        body = {
            "model": self.model,
            "prompt": prompt.token_ids,
            "max_tokens": prompt.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._stream(record, body)
        except TimeoutError:
            record.error = f"it took more than {self._timeout_seconds:g} s"
        except httpx.HTTPError as error:
            record.error = type(error).__name__
        except BadAnswer as error:
            record.error = error.message
        record.ended_at = self._clock()
        return record

    async def _stream(self, record: Record, body: dict[str, Any]) -> None:
        usage: Any = None
        url = f"{self._base_url}/v1/completions"
        async with self._http.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                raise BadAnswer(f"HTTP {answer.status_code}{reason(await answer.aread())}")
            async for line in answer.aiter_lines():
                now = self._clock()
                data = line.removeprefix("data:").strip()
                if data == line or data == "[DONE]":
                    continue
                event = parsed(data)
                if event.get("error") is not None:
                    raise BadAnswer(f"error in the stream{reason(data)}")
                if event.get("choices"):
                    record.piece_times.append(now)
                usage = event.get("usage") or usage
        take_usage(record, usage)


def take_usage(record: Record, usage: Any) -> None:
    """Token counts as the server bills them. Raises BadAnswer where it tells none."""
    if not isinstance(usage, dict):
        raise BadAnswer("the stream ended without a usage")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    record.prompt_tokens = token_count(usage.get("prompt_tokens"))
    record.output_tokens = token_count(usage.get("completion_tokens"))
    record.cached_tokens = token_count(cached or 0)


def token_count(value: Any) -> int:
    """A number of the server's. Raises BadAnswer unless it can be one of tokens."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise BadAnswer("the usage has no token counts")
    return value


def checked_url(url: str) -> str:
    """An http URL without a trailing slash or /v1. Raises ConfigError on anything else."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            "base_url must be an address like http://127.0.0.1:8000", param="base_url"
        )
    return url.rstrip("/").removesuffix("/v1")


def parsed(data: str) -> dict[str, Any]:
    """One event as an object. Raises BadAnswer on anything else."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise BadAnswer("an event of the stream is no JSON object")
    return event


def reason(body: bytes | str) -> str:
    """': ' and the message of an error object, short and printable; nothing where there is none."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {printable(str(message))}"


def printable(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[:MAX_REASON_CHARS])
    return f"{shown}…" if len(text) > MAX_REASON_CHARS else shown
