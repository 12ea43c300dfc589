"""The log says who asked what when, as text or JSON, and never what was asked or answered."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from octavo.core.errors import EngineError
from octavo.engine.types import Chunk, GenerateRequest
from octavo.server.app import create_app
from octavo.server.telemetry.logs import logging_to, shown
from tests.server.conftest import LIMITS, Served
from tests.server.fake_engine import HANG, MODEL, FakeEngine, Step, usage

CANARY = "canary-7c1f"
Eventually = Callable[[Callable[[], bool]], None]


@contextmanager
def captured(form: str = "json", level: str = "info") -> Iterator[list[str]]:
    """The lines written meanwhile; complete once the block has ended."""
    stream, lines = io.StringIO(), list[str]()
    with logging_to(stream, form=form, level=level):
        yield lines
    lines += stream.getvalue().splitlines()


def ask(engine: FakeEngine, *requests: httpx.Request, repeat: int = 1) -> list[httpx.Response]:
    """Send requests to an application of their own, one after another."""

    async def run() -> list[httpx.Response]:
        app = create_app(engine, limits=LIMITS)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return [await http.send(each) for each in requests for _ in range(repeat)]

    return asyncio.run(run())


def chat(**fields: Any) -> httpx.Request:
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": MODEL, "messages": messages} | fields
    return httpx.Request("POST", "http://localhost/v1/chat/completions", json=body)


# -- what it says -------------------------------------------------------------------------------


def test_one_json_line_per_request() -> None:
    with captured() as lines:
        (answer,) = ask(FakeEngine(), chat())
    (line,) = (json.loads(each) for each in lines)
    assert line.pop("time").endswith("Z")
    assert 0 <= line.pop("first_token_seconds") <= line.pop("duration_seconds")
    assert line == {
        "level": "info",
        "logger": "octavo.server.requests",
        "request_id": answer.headers["x-request-id"],
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "key_id": None,
        "model": MODEL,
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "output_tokens": 2,
        "finish_reasons": ["stop"],
    }


def test_prompts_of_one_request_are_added_up() -> None:
    body = {"model": MODEL, "prompt": ["a", "b", "c"]}
    request = httpx.Request("POST", "http://localhost/v1/completions", json=body)
    with captured() as lines:
        ask(FakeEngine(), request)
    line = json.loads(lines[0])
    assert (line["prompt_tokens"], line["output_tokens"]) == (15, 6)


def test_text_has_the_same_facts() -> None:
    with captured("text") as lines:
        (answer,) = ask(FakeEngine(), chat())
    (line,) = lines
    assert f" INFO request_id={answer.headers['x-request-id']} method=POST path=/v1/chat/" in line
    assert "status=200" in line
    assert "prompt_tokens=5" in line
    assert "finish_reasons=stop" in line
    assert "key_id" not in line


def test_probes_are_for_debugging_and_refusals_are_not() -> None:
    probes = [httpx.Request("GET", f"http://localhost{path}") for path in ("/health", "/metrics")]
    with captured(level="info") as lines:
        ask(FakeEngine(), *probes, httpx.Request("GET", "http://localhost/none"))
    assert [json.loads(each)["status"] for each in lines] == [404]
    with captured(level="debug") as lines:
        ask(FakeEngine(), *probes)
    assert len(lines) == 2
    with captured(level="warning") as lines:
        ask(FakeEngine(), chat())
    assert lines == []


def test_a_failed_stream_is_said_to_have_failed() -> None:
    engine = FakeEngine()
    engine.script = lambda request: [
        Chunk(0, "a", (1,)),
        Chunk(0, "", (), finish_reason="error", error="broken", usage=usage()),
    ]
    with captured() as lines:
        ask(engine, chat(stream=True))
    line = json.loads(lines[0])
    assert (line["status"], line["finish_reasons"]) == (200, ["error"])


def test_a_client_that_left_is_499_and_what_is_not_known_is_null(
    served: Served, eventually: Eventually
) -> None:
    served.engine.script = lambda request: [Chunk(0, "a", (1,)), HANG]
    stream, asked = io.StringIO(), {"model": MODEL, "prompt": "x", "stream": True}
    with logging_to(stream, form="json", level="info"):
        with served.http.stream("POST", "/v1/completions", json=asked) as answer:
            next(answer.iter_lines())
        request_id = answer.headers["x-request-id"]
        eventually(lambda: request_id in stream.getvalue())
    line = json.loads(next(each for each in stream.getvalue().splitlines() if request_id in each))
    assert (line["status"], line["output_tokens"]) == (499, 1)
    assert (line["finish_reasons"], line["cached_tokens"]) == (None, None)


def test_no_name_can_forge_a_line_of_text() -> None:
    assert shown("team a\n2026 INFO status=200") == "team?a?2026?INFO?status=200"
    assert shown(["length", "stop"]) == "length,stop"


def test_a_path_cannot_forge_a_line() -> None:
    forged = httpx.Request("GET", "http://localhost/a%0A%0D%22%7D%7B%22status%22:200")
    for form in ("json", "text"):
        with captured(form) as lines:
            ask(FakeEngine(), forged)
        assert len(lines) == 1


# -- what it never says -------------------------------------------------------------------------

SPOILT: dict[str, Callable[[GenerateRequest], list[Step]]] = {
    "fine": lambda request: [Chunk(0, CANARY, (1,), finish_reason="stop", usage=usage())],
    "bug": lambda request: [ValueError(CANARY)],
    "late bug": lambda request: [Chunk(0, CANARY, (1,)), KeyError(CANARY)],
    "engine": lambda request: [EngineError(CANARY)],
    "error": lambda request: [
        Chunk(0, CANARY, (1,), finish_reason="error", error=CANARY, usage=usage())
    ],
}


def canaries() -> list[httpx.Request]:
    """The canary in every place of a request that is the caller's own, and in broken ones."""
    headers = {
        "x-request-id": CANARY,
        "authorization": f"Bearer {CANARY}",
        "x-api-key": CANARY,
        "user-agent": CANARY,
        "cookie": CANARY,
        CANARY: CANARY,
    }
    system = {"role": "system", "content": CANARY}
    user = {"role": "user", "content": [{"type": "text", "text": CANARY}]}
    tool = {"type": "function", "function": {"name": CANARY, "parameters": {CANARY: CANARY}}}
    whole = {"model": MODEL, "messages": [system, user]}
    bodies: list[dict[str, Any]] = [
        whole,
        whole | {"stream": True},
        whole | {"tools": [tool]},
        whole | {"stop": [CANARY], "user": CANARY, "cache_salt": CANARY},
        whole | {"model": CANARY},
        whole | {"temperature": CANARY},
        whole | {CANARY: CANARY},
        whole | {"messages": [{"role": CANARY, "content": CANARY}]},
        whole | {"messages": [{"role": "tool", "content": CANARY, "tool_call_id": CANARY}]},
    ]
    url = "http://localhost/v1/chat/completions"
    found = [httpx.Request("POST", url, json=body, headers=headers) for body in bodies]
    found.append(httpx.Request("POST", url, content=f'{{"{CANARY}": '.encode(), headers=headers))
    completion = {"model": MODEL, "prompt": CANARY, "suffix": CANARY}
    return [
        *found,
        httpx.Request("POST", "http://localhost/v1/completions", json=completion),
        httpx.Request("GET", f"http://localhost/v1/usage?by={CANARY}", headers=headers),
    ]


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("name", SPOILT)
def test_content_never_reaches_the_log(
    form: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine()
    engine.script = SPOILT[name]
    with captured(form) as lines:
        answers = ask(engine, *canaries())
    assert len(answers) == 12
    assert len(lines) >= len(answers)
    assert CANARY not in "\n".join(lines)
    told = capfd.readouterr()
    assert CANARY not in told.out + told.err


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_a_type_and_a_place(form: str) -> None:
    with captured(form) as lines:
        try:
            raise ValueError(CANARY)
        except ValueError:
            logging.getLogger("octavo.engine.engine").exception("request %s failed", "req-1")
    text = "\n".join(lines)
    assert CANARY not in text
    assert "request req-1 failed" in text
    assert "ValueError" in text
    assert "test_logs.py" in text


def test_what_another_handler_has_formatted_is_not_taken_over() -> None:
    """A record carries the text of its exception once somebody has formatted it."""
    with captured() as lines:
        try:
            raise ValueError(CANARY)
        except ValueError:
            record = logging.LogRecord("octavo", 40, "", 1, "x", None, sys.exc_info())
        assert CANARY in logging.Formatter().format(record)
        logging.getLogger("octavo").handle(record)
    assert CANARY not in "\n".join(lines)


def test_asyncio_shows_no_task() -> None:
    async def fail() -> None:
        raise ValueError(CANARY)

    async def forget() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task

    with captured() as lines:
        asyncio.run(forget())
    text = "\n".join(lines)
    assert "Task exception was never retrieved" in text
    assert "ValueError" in text
    assert CANARY not in text


def test_other_libraries_only_warn() -> None:
    with captured(level="debug") as lines:
        logging.getLogger("httpcore").debug(CANARY)
        logging.getLogger("somebody").info(CANARY)
        logging.getLogger("octavo.engine").debug("ours")
    assert [json.loads(each)["message"] for each in lines] == ["ours"]
