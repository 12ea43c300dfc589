"""docs/bad-input.md, line by line, against a real engine: what each wrong request gets.

After all of them the engine holds no block and answers a good request as before.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.engine.async_engine import AsyncEngine
from tests.engine.conftest import CHATML
from tests.engine.tiny import assert_empty, prompt
from tests.server.conftest import LIMITS
from tests.server.faults import ABSENT, CHAT, COMPLETIONS, USER, changed
from tests.server.live import MODEL, VOCAB, serving, talker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "bad-input.md"
CONTEXT = 128
POOL_TOKENS = 96
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": [USER], "max_tokens": 3},
    COMPLETIONS: {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 3},
}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@dataclass(frozen=True)
class Row:
    """One line of the page, and a request of that kind."""

    number: int
    status: int
    code: str | None
    param: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    path: str = CHAT
    method: str = "POST"
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    strict: bool = False  # sent to the server that does not clamp max_tokens

    @property
    def told(self) -> tuple[int, int, str | None, str | None]:
        return self.number, self.status, self.code, self.param

    def content(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return changed(GOOD.get(self.path, {}), self.fields)


def fields(
    number: int, code: str, param: str, *cases: dict[str, Any], path: str = CHAT, status: int = 400
) -> list[Row]:
    return [Row(number, status, code, param, case, path=path) for case in cases]


def messages(*given: Any) -> dict[str, Any]:
    return {"messages": list(given)}


def says(content: Any) -> dict[str, Any]:
    return messages({"role": "user", "content": content})


def media(kind: str, url: str) -> dict[str, Any]:
    return says([{"type": kind, kind: {"url": url}}])


ROWS = [
    Row(1, 400, "invalid_json", raw=b""),
    Row(1, 400, "invalid_json", raw=b'{"model": "ti'),
    Row(1, 400, "invalid_json", raw=b'{"temperature": NaN}'),
    Row(1, 400, "invalid_type", raw=b"[]"),
    Row(3, 400, "invalid_encoding", raw=b'{"model": "\xff"}'),
    *fields(3, "invalid_encoding", "messages.[0].content", says("\ud800")),
    *fields(3, "invalid_encoding", "prompt", {"prompt": "a\udfff"}, path=COMPLETIONS),
    Row(4, 415, "unsupported_media_type", headers={"content-type": "text/plain"}),
    Row(5, 413, "request_too_large", raw=b" " * (LIMITS.body_bytes + 1)),
    Row(6, 415, "unsupported_encoding", headers={"content-encoding": "gzip"}),
    Row(6, 415, "unsupported_encoding", headers={"content-encoding": "br"}),
    Row(7, 431, "headers_too_large", headers={f"x-{i}": "1" for i in range(101)}),
    Row(11, 404, "unknown_url", path="/v1/nothing"),
    Row(12, 405, "method_not_allowed", method="GET"),
    *fields(13, "missing_required_parameter", "model", {"model": ABSENT}, {"model": ""}),
    *fields(14, "model_not_found", "model", {"model": "gpt-5"}, status=404),
    *fields(15, "missing_required_parameter", "messages", {"messages": ABSENT}),
    *fields(15, "array_below_min_length", "messages", messages()),
    *fields(15, "invalid_type", "messages", {"messages": "hi"}),
    *fields(16, "invalid_value", "messages.[0].role", messages({**USER, "role": "bot"})),
    *fields(16, "missing_required_parameter", "messages.[0].content", messages({"role": "user"})),
    *fields(16, "invalid_type", "messages.[0].content", says(7), says([])),
    *fields(
        17, "invalid_value", "messages.[0].tool_call_id", messages({"role": "tool", "content": "1"})
    ),
    *fields(
        17,
        "invalid_value",
        "messages.[1].tool_call_id",
        messages(USER, {"role": "tool", "content": "1", "tool_call_id": "c9"}),
    ),
    *fields(
        18,
        "conflicting_parameters",
        "continue_final_message",
        {"continue_final_message": True, "add_generation_prompt": True},
    ),
    *fields(
        19,
        "empty_prompt",
        "prompt",
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [[]]},
        path=COMPLETIONS,
    ),
    *fields(21, "too_many_prompts", "prompt", {"prompt": ["a"] * 9}, path=COMPLETIONS),
    *fields(22, "context_length_exceeded", "messages", says("word " * 500)),
    *fields(22, "context_length_exceeded", "prompt", {"prompt": prompt(128)}, path=COMPLETIONS),
    Row(23, 200, None, fields={"max_tokens": 10**6}),
    Row(23, 400, "context_length_exceeded", "max_tokens", {"max_tokens": 127}, strict=True),
    *fields(24, "kv_capacity_exceeded", "prompt", {"prompt": prompt(97)}, path=COMPLETIONS),
    *fields(25, "integer_below_min_value", "max_tokens", {"max_tokens": 0}, {"max_tokens": -1}),
    *fields(25, "invalid_type", "max_tokens", {"max_tokens": 1.5}, {"max_tokens": "5"}),
    *fields(25, "integer_above_max_value", "max_tokens", {"max_tokens": 10**18}),
    *fields(26, "invalid_value", "min_tokens", {"min_tokens": 4}),
    *fields(27, "decimal_below_min_value", "temperature", {"temperature": -0.1}),
    *fields(27, "decimal_above_max_value", "temperature", {"temperature": 2.1}),
    *fields(27, "invalid_type", "temperature", {"temperature": "1"}),
    *fields(28, "decimal_below_min_value", "top_p", {"top_p": 0}),
    *fields(28, "decimal_above_max_value", "top_p", {"top_p": 1.1}),
    *fields(28, "decimal_above_max_value", "min_p", {"min_p": 1.1}),
    *fields(29, "integer_below_min_value", "top_k", {"top_k": -2}),
    Row(29, 200, None, fields={"top_k": 2**31 - 1}),
    *fields(30, "decimal_above_max_value", "presence_penalty", {"presence_penalty": 2.1}),
    *fields(30, "decimal_below_min_value", "frequency_penalty", {"frequency_penalty": -2.1}),
    *fields(
        30,
        "decimal_below_min_value",
        "repetition_penalty",
        {"repetition_penalty": 0},
        {"repetition_penalty": -1},
    ),
    *fields(31, "integer_below_min_value", "n", {"n": 0}),
    *fields(31, "integer_above_max_value", "n", {"n": 129}),
    Row(31, 200, None, fields={"n": 2, "temperature": 0}),
    *fields(33, "integer_above_max_value", "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    *fields(33, "conflicting_parameters", "top_logprobs", {"top_logprobs": 1}),
    *fields(33, "integer_above_max_value", "logprobs", {"logprobs": 21}, path=COMPLETIONS),
    *fields(
        34,
        "invalid_value",
        "logit_bias",
        {"logit_bias": {str(i): 1 for i in range(301)}},
        {"logit_bias": {"abc": 1}},
        {"logit_bias": {str(VOCAB): 1}},
        {"logit_bias": {"5": 100.5}},
    ),
    *fields(36, "integer_above_max_value", "seed", {"seed": 2**63}),
    *fields(36, "invalid_type", "seed", {"seed": 0.5}),
    *fields(
        37, "conflicting_parameters", "stream_options", {"stream_options": {"include_usage": True}}
    ),
    *fields(37, "invalid_type", "stream", {"stream": 1}),
    *fields(
        38,
        "unsupported_parameter",
        "response_format",
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"response_format": {"type": "other"}},
    ),
    *fields(39, "unsupported_parameter", "guided_regex", {"guided_regex": "a+"}),
    *fields(39, "unsupported_parameter", "structured_outputs", {"structured_outputs": {}}),
    Row(40, 200, None, fields={"tools": []}),
    *fields(40, "array_above_max_length", "tools", {"tools": [TOOL] * 129}),
    *fields(40, "invalid_value", "tools", {"tools": [TOOL, TOOL]}),
    *fields(
        40,
        "invalid_value",
        "tools.[0].function.name",
        {"tools": [{"type": "function", "function": {"name": "no name"}}]},
    ),
    *fields(41, "conflicting_parameters", "tool_choice", {"tool_choice": "auto"}),
    *fields(
        41,
        "unsupported_parameter",
        "tool_choice",
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
    ),
    *fields(
        43,
        "unsupported_content",
        "messages.[0].content",
        media("image_url", "data:image/png;base64,AA=="),
        media("input_audio", "data:audio/wav;base64,AA=="),
    ),
    *fields(
        44,
        "unsupported_content",
        "messages.[0].content",
        media("image_url", "http://10.0.0.1/a.png"),
        media("image_url", "file:///etc/hostname"),
    ),
    *fields(45, "unsupported_parameter", "chat_template", {"chat_template": "{{ messages }}"}),
    *fields(
        45,
        "unsupported_parameter",
        "chat_template_kwargs",
        {"chat_template_kwargs": {"tokenize": True}},
        {"chat_template_kwargs": {"messages": []}},
    ),
    *fields(
        45,
        "invalid_value",
        "chat_template_kwargs",
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        {"chat_template_kwargs": {"enable_thinking": "yes"}},
    ),
    *fields(46, "template_error", "messages", says("refuse me")),
    *fields(48, "unsupported_parameter", "store", {"store": True}),
    *fields(48, "unsupported_parameter", "audio", {"audio": {"voice": "a"}}),
    *fields(48, "unsupported_parameter", "modalities", {"modalities": ["text", "audio"]}),
    *fields(48, "unsupported_parameter", "suffix", {"suffix": "end"}, path=COMPLETIONS),
    *fields(48, "unsupported_parameter", "best_of", {"best_of": 2}, path=COMPLETIONS),
    *fields(49, "unknown_parameter", "temprature", {"temprature": 1}),
    Row(51, 408, "request_timeout"),
    *fields(54, "integer_above_max_value", "priority", {"priority": 1001}),
    *fields(54, "integer_below_min_value", "priority", {"priority": -1001}),
]


@dataclass
class House:
    engine: AsyncEngine
    http: httpx.Client
    strict: httpx.Client
    expected: str = ""  # the answer to a good request


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A context of 128 and a pool of 96 tokens; a template that refuses one message."""
    folder: Path = tmp_path_factory.mktemp("table")
    talker(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    refusal = "{% if messages[0].content == 'refuse me' %}{{ raise_exception('no') }}{% endif %}"
    config["chat_template"] = refusal + CHATML
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    sizes = {"max_model_len": CONTEXT, "num_blocks": POOL_TOKENS // 16}
    no_clamp = replace(LIMITS, clamp_max_tokens=False)
    with ExitStack() as stack:
        engine, url = stack.enter_context(serving(folder, **sizes))
        _, strict_url = stack.enter_context(serving(folder, limits=no_clamp, **sizes))
        clients = [
            stack.enter_context(httpx.Client(base_url=each, timeout=20))
            for each in (url, strict_url)
        ]
        house = House(engine, *clients)
        house.expected = good(house)
        yield house


def good(house: House) -> str:
    body = {**GOOD[COMPLETIONS], "temperature": 0}
    text: str = house.http.post(COMPLETIONS, json=body).json()["choices"][0]["text"]
    return text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.code}-{row.param}")
def test_row(house: House, row: Row) -> None:
    answer = slowly(house) if row.number == 51 else send(house, row)
    assert answer.status_code == row.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    if row.status == 200:
        assert answer.json()["choices"]
    else:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["code"], error["param"]) == (row.code, row.param), error
        assert error["type"] == "invalid_request_error"
        assert " at 0x" not in error["message"]
        assert "Traceback" not in error["message"]
    if row.status != 408:
        assert answer.headers["x-request-id"].startswith("req_")
    assert_empty(house.engine._engine)
    assert good(house) == house.expected


def send(house: House, row: Row) -> httpx.Response:
    http = house.strict if row.strict else house.http
    headers = {"content-type": "application/json", **row.headers}
    return http.request(row.method, row.path, content=row.content(), headers=headers)


def slowly(house: House) -> httpx.Response:
    """A header that never ends."""
    url = house.http.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=10) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        raw = b""
        while part := connection.recv(4096):
            raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


def test_clamping_says_length(house: House) -> None:
    body = {**GOOD[COMPLETIONS], "max_tokens": 10**6, "ignore_eos": True}
    (choice,) = house.http.post(COMPLETIONS, json=body).json()["choices"]
    assert choice["finish_reason"] == "length"
    # What the caller does not ask for is never refused.
    del body["max_tokens"]
    assert house.strict.post(COMPLETIONS, json=body).status_code == 200


LINE = re.compile(r"\| (\d+) \| .* \| (\d{3}) \| (.*?) \| (.*?) \|")


def test_the_page_says_the_same() -> None:
    def word(cell: str) -> str | None:
        return None if cell == "–" else cell.strip("`")

    found = {
        (int(line[1]), int(line[2]), word(line[3]), word(line[4]))
        for line in map(LINE.fullmatch, PAGE.read_text(encoding="utf-8").splitlines())
        if line
    }
    assert found == {row.told for row in ROWS}
