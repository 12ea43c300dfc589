"""Nobody computes for a client that has left, stalls or is failed in the middle."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import openai
import pytest

from octavo.core.errors import EngineError
from octavo.core.sampling import SamplingParams
from octavo.engine.types import Chunk, GenerateRequest
from octavo.server.streams import Streams
from tests.server.conftest import Served
from tests.server.fake_engine import HANG, MODEL, FakeEngine, FakeStream

Eventually = Callable[[Callable[[], bool]], None]
FIRST = Chunk(0, "Hel", (1,))


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=5)


def send_chat(served: Served, path: str = "/v1/chat/completions", **fields: Any) -> socket.socket:
    """A raw connection on which a request has been sent."""
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    if path == "/v1/completions":
        prompt = {"prompt": ["a", "b"]}
    body = json.dumps({"model": MODEL, **prompt, **fields}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection = connect(served)
    connection.sendall(head.encode() + body)
    return connection


def rest(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("steps", [[HANG], [FIRST, HANG]])
@pytest.mark.parametrize("stream", [False, True])
def test_leaving_cancels(
    served: Served, eventually: Eventually, steps: list[Any], stream: bool
) -> None:
    served.engine.script = lambda request: steps
    with send_chat(served, stream=stream):
        eventually(lambda: len(served.engine.requests) == 1)
        assert served.engine.cancelled == set()
    eventually(lambda: served.engine.cancelled == {0})


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_cancels_every_prompt(served: Served, eventually: Eventually, stream: bool) -> None:
    served.engine.script = lambda request: [FIRST, HANG]
    with send_chat(served, "/v1/completions", stream=stream):
        eventually(lambda: len(served.engine.requests) == 2)
    eventually(lambda: served.engine.cancelled == {0, 1})


def test_closing_the_vendors_stream_cancels(served: Served, eventually: Eventually) -> None:
    served.engine.script = lambda request: [FIRST, HANG]
    messages: Any = [{"role": "user", "content": "hi"}]
    with served.client.chat.completions.create(
        model=MODEL, messages=messages, stream=True
    ) as stream:
        next(iter(stream))
    eventually(lambda: served.engine.cancelled == {0})


def test_leaving_before_the_body_is_sent(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
    assert served.http.get("/health").status_code == 200
    assert served.engine.requests == []


def test_a_reader_that_stalls_is_cut_off(served: Served, eventually: Eventually) -> None:
    text = "x" * 10_000
    many = 5_000
    served.engine.script = lambda request: [Chunk(0, text, (1,))] * many
    with send_chat(served, stream=True):
        eventually(lambda: served.engine.cancelled == {0})
    # What was produced meanwhile is bounded by buffers, not by the answer.
    assert served.engine.sent < many
    assert served.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    "failure",
    [
        Chunk(0, "", (), finish_reason="error", error="NaN in the logits"),
        EngineError("NaN in the logits"),
    ],
)
def test_failure_in_mid_stream(served: Served, failure: Any) -> None:
    served.engine.script = lambda request: [FIRST, failure]
    with send_chat(served, stream=True) as connection:
        data = b""
        while b"0\r\n\r\n" not in data:
            part = connection.recv(65536)
            assert part
            data += part
    events = [line for line in data.split(b"\n\n") if b"data: " in line]
    last = json.loads(events[-1].partition(b"data: ")[2])
    assert last["error"]["message"] == "NaN in the logits"
    assert (last["error"]["type"], last["error"]["code"]) == ("server_error", "server_error")
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert b"[DONE]" not in data
    assert len(events) == 3


def test_the_vendors_client_sees_the_failure(served: Served) -> None:
    served.engine.script = lambda request: [FIRST, ValueError("secret prompt")]
    messages: Any = [{"role": "user", "content": "hi"}]
    with (
        served.client.chat.completions.create(
            model=MODEL, messages=messages, stream=True
        ) as stream,
        pytest.raises(openai.APIError) as caught,
    ):
        list(stream)
    assert "secret" not in str(caught.value)


def test_an_aborted_request_is_no_answer(served: Served) -> None:
    served.engine.script = lambda request: [FIRST, Chunk(0, "", (), finish_reason="abort")]
    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.InternalServerError) as caught:
        served.client.chat.completions.create(model=MODEL, messages=messages)
    assert (caught.value.status_code, caught.value.code) == (503, "engine_closed")


def test_one_failed_prompt_stops_the_others(served: Served, eventually: Eventually) -> None:
    def script(request: Any) -> list[Any]:
        return [0.05, EngineError("broken")] if request.prompt == "b" else [FIRST, HANG]

    served.engine.script = script
    with pytest.raises(openai.InternalServerError):
        served.client.completions.create(model=MODEL, prompt=["a", "b"])
    eventually(lambda: 0 in served.engine.cancelled)


def test_a_finished_request_is_not_cancelled(served: Served) -> None:
    served.client.completions.create(model=MODEL, prompt=["a", "b"])
    assert served.engine.cancelled == set()


def test_headers_that_do_not_arrive(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.")
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"


def test_second_header_on_a_connection_has_a_deadline_too(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /hea")
        assert b"HTTP/1.1 408 " in rest(connection)


def test_body_that_does_not_arrive(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200_000, 431),
        (b"\x16\x03\x01\x02\x00nonsense\r\n\r\n", 400),
    ],
)
def test_what_never_becomes_a_request(served: Served, raw: bytes, status: int) -> None:
    with connect(served) as connection:
        connection.sendall(raw)
        answer = rest(connection)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {
        "message",
        "type",
        "param",
        "code",
    }


class Broken(FakeStream):
    async def cancel(self) -> None:
        raise EngineError("gone")


def test_streams_cancel_all_even_if_one_refuses() -> None:
    engine = FakeEngine()

    async def cancel() -> None:
        stream = await engine.submit(GenerateRequest(prompt="a", params=SamplingParams()))
        await Streams([Broken([], 7, engine), stream]).cancel()

    asyncio.run(cancel())
    assert engine.cancelled == {0}
