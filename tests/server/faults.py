"""Bodies made wrong on purpose, and what every error answer must look like."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.server.conftest import Served
from tests.server.fake_engine import MODEL

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = {"role": "user", "content": "hi"}
GOOD_CHAT: dict[str, Any] = {"model": MODEL, "messages": [USER]}
GOOD_COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "hi"}
ABSENT: Any = object()


def check(answer: httpx.Response, status: int, code: str | None, param: str | None) -> None:
    """The status, the error object's four keys and the id header."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param), error
    assert isinstance(error["message"], str)
    assert error["message"]
    assert " at 0x" not in error["message"]
    assert error["type"] == {503: "service_unavailable", 500: "server_error"}.get(
        status, "permission_error" if status == 403 else "invalid_request_error"
    )


def changed(good: dict[str, Any], fields: dict[str, Any]) -> bytes:
    """A body as bytes: lone surrogates go out as JSON escapes."""
    body = {name: value for name, value in {**good, **fields}.items() if value is not ABSENT}
    return json.dumps(body).encode("ascii")


def post(served: Served, path: str, raw: bytes, **headers: str) -> httpx.Response:
    return served.http.post(
        path, content=raw, headers={"content-type": "application/json", **headers}
    )
