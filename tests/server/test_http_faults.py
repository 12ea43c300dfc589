"""Wrong bodies, headers and paths, and refusals of the engine: the right status for each."""

from __future__ import annotations

import pytest

from octavo.core.errors import (
    EngineClosed,
    EngineError,
    NeverFits,
    Overloaded,
    PromptTooLong,
    RequestError,
)
from octavo.engine.types import Chunk
from tests.server.conftest import Served
from tests.server.faults import CHAT, GOOD_CHAT, changed, check, post


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b'{"model": "fa', "invalid_json"),
        (b"not json", "invalid_json"),
        (b'{"temperature": NaN}', "invalid_json"),
        (b'{"temperature": -Infinity}', "invalid_json"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b"[" * 50_000, "invalid_json"),
        (b"[]", "invalid_type"),
        (b'"text"', "invalid_type"),
        (b'{"model": "\xff\xfe"}', "invalid_encoding"),
        (b'{"\\ud800": 1}', "invalid_encoding"),
    ],
)
def test_bodies_that_are_no_json_object(served: Served, raw: bytes, code: str) -> None:
    check(post(served, CHAT, raw), 400, code, None)


def test_infinite_number(served: Served) -> None:
    raw = changed(GOOD_CHAT, {}).replace(b"{", b'{"temperature": 1e999, ', 1)
    check(post(served, CHAT, raw), 400, "invalid_value", "temperature")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain"}, "unsupported_media_type"),
        ({"content-type": "application/json; charset=utf-16"}, "unsupported_media_type"),
        ({"content-type": ""}, "unsupported_media_type"),
        ({"content-encoding": "gzip"}, "unsupported_encoding"),
        ({"content-encoding": "br"}, "unsupported_encoding"),
    ],
)
def test_media_types(served: Served, headers: dict[str, str], code: str) -> None:
    check(post(served, CHAT, changed(GOOD_CHAT, {}), **headers), 415, code, None)


def test_charset_of_json_may_be_named(served: Served) -> None:
    answer = post(
        served,
        CHAT,
        changed(GOOD_CHAT, {}),
        **{"content-type": 'application/json; charset="UTF-8"'},
    )
    assert answer.status_code == 200


def test_declared_body_too_large(served: Served) -> None:
    answer = post(served, CHAT, b" " * 100_001)
    check(answer, 413, "request_too_large", None)
    assert answer.headers["connection"] == "close"


def test_streamed_body_too_large(served: Served) -> None:
    parts = (b" " * 10_000 for _ in range(300))
    answer = served.http.post(CHAT, content=parts, headers={"content-type": "application/json"})
    check(answer, 413, "request_too_large", None)


def test_unknown_model(served: Served) -> None:
    answer = post(served, CHAT, changed(GOOD_CHAT, {"model": "gpt-5"}))
    check(answer, 404, "model_not_found", "model")
    check(served.http.get("/v1/models/gpt-5"), 404, "model_not_found", "model")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat", "/v1/models/", "/docs", "/v1/%00%0a"])
def test_unknown_path(served: Served, path: str) -> None:
    if path == "/v1/models/":
        check(served.http.get(path), 404, "model_not_found", "model")
    else:
        check(served.http.get(path), 404, "unknown_url", None)


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("DELETE", "/v1/models")])
def test_wrong_method(served: Served, method: str, path: str) -> None:
    answer = served.http.request(method, path)
    check(answer, 405, "method_not_allowed", None)
    assert answer.headers["allow"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (PromptTooLong("600 of 512", param="prompt"), 400, "context_length_exceeded", "messages"),
        (NeverFits("needs 9 blocks of 8"), 400, "kv_capacity_exceeded", None),
        (RequestError("bad template", code="template_error"), 400, "template_error", None),
        (RequestError("too long", param="max_tokens"), 400, "invalid_value", "max_tokens"),
        (Overloaded("8 requests wait"), 503, "overloaded", None),
        (EngineClosed("the engine has stopped"), 503, "engine_closed", None),
        (EngineError("it broke"), 500, "server_error", None),
        (ValueError("secret prompt"), 500, "server_error", None),
    ],
)
def test_refusals_of_the_engine(
    served: Served, error: Exception, status: int, code: str, param: str | None, stream: bool
) -> None:
    served.engine.refusal = error
    answer = post(served, CHAT, changed(GOOD_CHAT, {"stream": stream}))
    check(answer, status, code, param)
    assert "secret" not in answer.text
    if status == 503:
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_failure_before_the_first_chunk_keeps_its_status(served: Served, stream: bool) -> None:
    served.engine.script = lambda request: [EngineError("NaN in the logits")]
    answer = post(served, CHAT, changed(GOOD_CHAT, {"stream": stream}))
    check(answer, 500, "server_error", None)


def test_a_failure_that_would_come_again_is_not_to_be_repeated(served: Served) -> None:
    """The vendor's client repeats a 500 by itself unless it is told not to."""
    broken = Chunk(0, "", (), finish_reason="error", error="the logits are not finite")
    served.engine.script = lambda request: [broken]
    answer = post(served, CHAT, changed(GOOD_CHAT, {}))
    check(answer, 500, "server_error", None)
    assert answer.headers["x-should-retry"] == "false"
    served.engine.refusal = Overloaded("8 requests wait")
    assert "x-should-retry" not in post(served, CHAT, changed(GOOD_CHAT, {})).headers


def test_the_field_is_named_as_it_was_sent(served: Served) -> None:
    served.engine.refusal = RequestError("too many", param="max_tokens")
    answer = post(served, CHAT, changed(GOOD_CHAT, {"max_completion_tokens": 5}))
    check(answer, 400, "invalid_value", "max_completion_tokens")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "evil.example"}, "host_not_allowed"),
        ({"host": "evil.example:8000"}, "host_not_allowed"),
        ({"origin": "https://evil.example"}, "origin_not_allowed"),
        ({"origin": "null"}, "origin_not_allowed"),
    ],
)
def test_foreign_pages(served: Served, headers: dict[str, str], code: str) -> None:
    check(post(served, CHAT, changed(GOOD_CHAT, {}), **headers), 403, code, None)
    check(served.http.get("/v1/models", headers=headers), 403, code, None)


def test_own_pages(served: Served) -> None:
    headers = {"host": "localhost:1", "origin": "http://127.0.0.1:3000"}
    assert served.http.get("/v1/models", headers=headers).status_code == 200


def test_too_many_headers(served: Served) -> None:
    headers = {f"x-{number}": "1" for number in range(101)}
    check(served.http.get("/health", headers=headers), 431, "headers_too_large", None)
