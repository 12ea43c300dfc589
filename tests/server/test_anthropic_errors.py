"""Errors of /v1/messages: their shape, statuses and types, and what each wrong field is told."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest

from octavo.core.errors import EngineClosed, EngineError, Overloaded, PromptTooLong, RequestError
from octavo.engine.types import Chunk
from octavo.server import sse
from tests.server.conftest import LIMITS, Served
from tests.server.fake_engine import MODEL
from tests.server.faults import ABSENT, changed, post

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "hi"}
GOOD: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": [USER]}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "7"}


def check(answer: httpx.Response, status: int, kind: str) -> str:
    """The status and the whole shape. Returns the message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert set(found) == {"type", "error", "request_id"}
    assert set(found["error"]) == {"type", "message"}
    assert (found["type"], found["error"]["type"]) == ("error", kind), found
    assert found["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    message: str = found["error"]["message"]
    assert message
    assert " at 0x" not in message
    return message


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def asked(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def kept(ttl: str | None = None) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})}


IMAGE = "messages.0.content.0: Content blocks of type 'image'"
DOCUMENT = "messages.0.content.0: Content blocks of type 'document'"
ROWS: list[tuple[dict[str, Any], str]] = [
    ({"model": ABSENT}, "model: "),
    ({"max_tokens": ABSENT}, "max_tokens: "),
    ({"max_tokens": 0}, "max_tokens: "),
    ({"max_tokens": 10**18}, "max_tokens: "),
    ({"max_tokens": "5"}, "max_tokens: "),
    ({"messages": ABSENT}, "messages: "),
    ({"messages": []}, "messages: "),
    ({"messages": [{**USER, "role": "tool"}]}, "messages.0.role: "),
    ({"messages": [{"role": "user"}]}, "messages.0.content: "),
    ({"messages": [{"role": "user", "content": []}]}, "messages.0.content: "),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: "),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.content.0.text.text: "),
    ({"messages": [asked({"type": "image", "source": {}})]}, IMAGE),
    ({"messages": [asked({"type": "document"})]}, DOCUMENT),
    ({"messages": [asked({"type": "thinking"})]}, "messages.0.content.0: "),
    ({"messages": [asked({"text": "a"})]}, "messages.0.content.0: "),
    ({"messages": [asked(text(citations=[{}]))]}, "messages.0.content.0.text.citations: "),
    ({"messages": [USER, {"role": "assistant", "content": "So"}]}, "messages: "),
    ({"messages": [asked(USE)]}, "messages.0.content.0: "),
    ({"messages": [asked(RESULT)]}, "messages.0.content.0.tool_use_id: "),
    ({"messages": [USER, said(USE), USER]}, "messages.2.content.0: "),
    ({"messages": [USER, said(USE), asked(text(), RESULT)]}, "messages.2.content.0: "),
    ({"messages": [USER, said(USE, USE), asked(RESULT)]}, "messages.1.content.1.id: "),
    ({"messages": [USER, said(USE, {**USE, "id": "t2"}), asked(RESULT)]}, "messages.1.content.1: "),
    ({"messages": [USER, said({**USE, "input": "x"}), asked(RESULT)]},
     "messages.1.content.0.tool_use.input: "),
    ({"messages": [USER, said({**USE, "name": "a b"}), asked(RESULT)]},
     "messages.1.content.0.name: "),
    ({"messages": [USER, said(USE), asked({**RESULT, "content": [{"type": "image"}]})]},
     "messages.2.content.0.tool_result.content.0: "),
    ({"system": [{"type": "image"}]}, "system.0: "),
    ({"system": 5}, "system: "),
    ({"temperature": 1.1}, "temperature: "),
    ({"temperature": "1"}, "temperature: "),
    ({"top_p": 0}, "top_p: "),
    ({"top_k": -1}, "top_k: "),
    ({"stream": 1}, "stream: "),
    ({"stop_sequences": "x"}, "stop_sequences: "),
    ({"stop_sequences": [""]}, "stop_sequences.0: "),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences: "),
    ({"metadata": {"more": "x"}}, "metadata.more: "),
    ({"service_tier": "priority"}, "service_tier: "),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking: "),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config: "),
    ({"container": "c"}, "container: "),
    ({"mcp_servers": [{}]}, "mcp_servers: "),
    ({"n": 2}, "n: "),
    ({"tool_choice": {"type": "any"}, "tools": [TOOL]}, "tool_choice: "),
    ({"tool_choice": {"type": "tool", "name": "f"}, "tools": [TOOL]}, "tool_choice: "),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
     "tool_choice.disable_parallel_tool_use: "),
    ({"tools": [{**TOOL, "name": "a b"}]}, "tools.0.name: "),
    ({"tools": [TOOL, TOOL]}, "tools: "),
    ({"tools": [{"name": "f"}]}, "tools.0.input_schema: "),
    ({"tools": [{**TOOL, "input_schema": {"type": "array"}}]}, "tools.0.input_schema: "),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type: "),
    ({"tools": [{**TOOL, "strict": True}]}, "tools.0.strict: "),
    ({"cache_control": {"type": "permanent"}}, "cache_control.type: "),
    ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "cache_control.ttl: "),
    ({"system": [text(**kept()) for _ in range(5)]}, "system.4.cache_control: "),
    ({"system": [text(**kept()) for _ in range(4)], **kept()}, "cache_control: "),
    ({"system": [text(**kept("5m"))], "messages": [asked(text(**kept("1h")))]},
     "messages.0.content.0.cache_control.ttl: "),
    ({"tools": [{**TOOL, **kept()}], "system": [text(**kept("1h"))]},
     "system.0.cache_control.ttl: "),
    ({"messages": [asked(text(**kept("1h")))], **kept()}, "cache_control.ttl: "),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "start"), ROWS)
def test_a_wrong_field_is_named(served: Served, fields: dict[str, Any], start: str) -> None:
    message = check(post(served, PATH, changed(GOOD, fields)), 400, "invalid_request_error")
    assert message.startswith(start), message
    assert served.engine.requests == []


def test_the_same_fields_asking_for_nothing_are_accepted(served: Served) -> None:
    for fields in (
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"effort": "high"}},
        {"context_management": {"edits": []}},
        {"mcp_servers": [], "container": None},
        {"tools": [], "tool_choice": {"type": "auto"}},
        {"system": [], "stop_sequences": [], "metadata": {"user_id": None}},
    ):
        assert post(served, PATH, changed(GOOD, fields)).status_code == 200, fields


def test_a_model_that_is_not_there(served: Served) -> None:
    for path, good in ((PATH, GOOD), (COUNT, {**GOOD, "max_tokens": ABSENT})):
        answer = post(served, path, changed(good, {"model": "claude"}))
        assert "claude" in check(answer, 404, "not_found_error")


def test_count_tokens_takes_no_sampling(served: Served) -> None:
    answer = post(served, COUNT, changed(GOOD, {}))
    assert check(answer, 400, "invalid_request_error").startswith("max_tokens: ")


def test_bodies(served: Served) -> None:
    check(post(served, PATH, b"{"), 400, "invalid_request_error")
    check(post(served, PATH, b"[" * 50_000), 400, "invalid_request_error")
    check(post(served, PATH, b"a" * (LIMITS.body_bytes + 1)), 413, "request_too_large")
    plain = served.http.post(PATH, content=b"{}", headers={"content-type": "text/plain"})
    check(plain, 415, "invalid_request_error")


def test_routes_and_the_guard(served: Served) -> None:
    check(served.http.get(f"{PATH}/batches"), 404, "not_found_error")
    check(served.http.get(PATH), 405, "invalid_request_error")
    check(served.http.post(PATH, headers={"host": "evil.example"}), 403, "permission_error")
    # Other paths keep the other shape.
    assert set(served.http.get("/v1/messagesx").json()) == {"error"}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("no", param="stop"), 400, "invalid_request_error"),
        (PromptTooLong("too long", param="prompt"), 400, "invalid_request_error"),
        (Overloaded("full"), 529, "overloaded_error"),
        (EngineClosed("gone"), 503, "overloaded_error"),
        (EngineError("failed"), 500, "api_error"),
        (ValueError("secret"), 500, "api_error"),
    ],
)
@pytest.mark.parametrize("path", [PATH, COUNT])
def test_errors_of_the_engine(
    served: Served, path: str, error: Exception, status: int, kind: str
) -> None:
    served.engine.refusal = error
    good = GOOD if path == PATH else {**GOOD, "max_tokens": ABSENT}
    answer = post(served, path, changed(good, {}))
    message = check(answer, status, kind)
    assert "secret" not in message
    if isinstance(error, RequestError):
        assert message.startswith(("stop_sequences: ", "messages: "))
    if status in (503, 529):
        assert answer.headers["retry-after"] in ("1", "2")  # estimated, with jitter


def test_the_client_knows_the_errors(served: Served) -> None:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        with pytest.raises(anthropic.BadRequestError, match="temperature: "):
            client.messages.create(**GOOD, extra_body={"temperature": 7})
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(**{**GOOD, "model": "other"})
        served.engine.refusal = Overloaded("full")
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(**GOOD)
        assert caught.value.status_code == 529


def test_a_failure_after_the_start_is_the_last_event(served: Served) -> None:
    served.engine.script = lambda request: [Chunk(0, "a", (1,)), EngineError("it broke")]
    answer = served.http.post(PATH, json={**GOOD, "stream": True})
    *_, before, last, end = answer.text.split("\n\n")
    assert end == ""
    assert before.startswith("event: content_block_delta\n")
    name, data = last.split("\n")
    assert name == "event: error"
    found = json.loads(data.removeprefix("data: "))
    assert found["error"] == {"type": "api_error", "message": "it broke"}
    assert found["request_id"] == answer.headers["request-id"]
    with (
        anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client,
        pytest.raises(anthropic.APIStatusError, match="it broke"),
        client.messages.stream(**GOOD) as stream,
    ):
        stream.until_done()


def test_a_failure_before_the_first_token_keeps_its_status(served: Served) -> None:
    served.engine.script = lambda request: [Chunk(0, "", (), finish_reason="error", error="broke")]
    check(served.http.post(PATH, json={**GOOD, "stream": True}), 500, "api_error")


def test_a_failure_after_a_ping_is_an_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.05)
    served.engine.script = lambda request: [0.15, EngineError("it broke")]
    answer = served.http.post(PATH, json={**GOOD, "stream": True})
    assert answer.status_code == 200
    names = [line for line in answer.text.splitlines() if line.startswith("event: ")]
    assert set(names[:-1]) == {"event: ping"}
    assert names[-1] == "event: error"
