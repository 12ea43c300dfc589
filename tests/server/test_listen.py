"""Start and stop: the socket, the signals, and what running requests see of the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from octavo.core.errors import ConfigError
from octavo.engine.types import Chunk
from octavo.server.app import create_app
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, make_server
from tests.server.fake_engine import HANG, MODEL, FakeEngine

Eventually = Callable[[Callable[[], bool]], None]
STOPPING = "Stopping: running requests have 30 s to finish; once more ends them now.\n"
SERVE = """
import sys
from octavo.server.app import create_app
from octavo.server.access.doors import Doors
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, serve
from octavo.server.access.watchdog import Watchdog
from tests.server.fake_engine import FakeEngine
engine = FakeEngine()
listener = bound_socket("127.0.0.1", 0)
port = listener.getsockname()[1]
doors, limits = Doors(), ServerLimits()
serve(
    create_app(engine, doors=doors),
    listener,
    limits=limits,
    doors=doors,
    watchdog=Watchdog(engine, doors, seconds=limits.watchdog_seconds),
    started=lambda: print(port, flush=True),
)
print("closed" if engine.closed else "left open")
"""

DRAINING = """
from octavo.engine.types import Chunk
engine = FakeEngine()
from tests.server.fake_engine import usage
engine.script = lambda request: [
    Chunk(0, "Hel", (1,)), 1.0, Chunk(0, "lo", (1,), finish_reason="stop", usage=usage())
]
"""

HANGING = """
from octavo.engine.types import Chunk
engine = FakeEngine()
engine.script = lambda request: [Chunk(0, "Hel", (1,)), "hang"]
"""


def test_a_port_that_is_taken() -> None:
    with bound_socket("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} is in use.*--port"):
            bound_socket("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("no such host", 0), ("127.0.0.1", 1 << 70)])
def test_an_address_that_is_none(host: str, port: int) -> None:
    with pytest.raises(ConfigError) as caught:
        bound_socket(host, port)
    assert caught.value.param == "host"


def test_clients_are_refused_until_the_server_runs() -> None:
    with bound_socket("127.0.0.1", 0) as listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(listener.getsockname(), timeout=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        # The line comes just before the loop starts.
        with httpx.Client(transport=httpx.HTTPTransport(retries=5)) as client:
            assert client.get(f"http://127.0.0.1:{port}/health").status_code == 200
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "closed\n", STOPPING)


def refuses(url: str) -> bool:
    """Whether the server says that it is leaving."""
    return httpx.get(f"{url}/ready").status_code == 503


def test_a_second_signal_does_not_wait(eventually: Eventually) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE.replace("engine = FakeEngine()", HANGING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        body = {"model": MODEL, "prompt": "a", "stream": True}
        with (
            httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=20) as client,
            client.stream("POST", f"{url}/v1/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            assert "Hel" in next(lines)
            process.send_signal(signal.SIGINT)
            eventually(lambda: refuses(url))
            process.send_signal(signal.SIGINT)
            last = [line for line in lines if line][-1]
        out, err = process.communicate(timeout=20)
    assert "engine_closed" in last
    assert (process.returncode, out, err) == (0, "closed\n", STOPPING)


def test_draining_finishes_what_runs_and_answers_who_comes(eventually: Eventually) -> None:
    """Ready says no at once; new work gets 503 and a closed connection, never a reset."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE.replace("engine = FakeEngine()", DRAINING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        body = {"model": MODEL, "prompt": "a", "stream": True}
        with (
            httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=20) as client,
            httpx.Client(timeout=20) as late,
            client.stream("POST", f"{url}/v1/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            assert "Hel" in next(lines)
            assert late.get(f"{url}/ready").status_code == 200
            process.send_signal(signal.SIGTERM)
            eventually(lambda: late.get(f"{url}/ready").status_code == 503)
            eventually(lambda: late.post(f"{url}/v1/completions", json=body).status_code == 503)
            refused = late.post(f"{url}/v1/completions", json=body)
            assert refused.json()["error"]["code"] == "engine_closed"
            assert refused.headers["connection"] == "close"
            assert late.get(f"{url}/health").status_code == 200
            told = [line for line in lines if line]
        out, err = process.communicate(timeout=20)
    assert "lo" in told[0]
    assert told[-1] == "data: [DONE]"
    assert (process.returncode, out, err) == (0, "closed\n", STOPPING)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("steps", [[Chunk(0, "Hel", (1,)), HANG], [HANG]])
def test_what_outlasts_the_drain_gets_an_error(
    eventually: Eventually, steps: list[Any], stream: bool
) -> None:
    engine = FakeEngine()
    engine.script = lambda request: steps
    limits = ServerLimits(drain_seconds=1.0)
    listener = bound_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/completions"
    server = make_server(create_app(engine), limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    eventually(lambda: server.started)
    answers: list[httpx.Response] = []
    body = {"model": MODEL, "prompt": "a", "stream": stream}
    asking = threading.Thread(target=lambda: answers.append(httpx.post(url, json=body, timeout=20)))
    asking.start()
    eventually(lambda: len(engine.requests) == 1)
    time.sleep(0.1)  # lets the first chunk, if there is one, go out
    server.should_exit = True
    asking.join(timeout=20)
    thread.join(timeout=20)
    (answer,) = answers
    if stream and len(steps) == 2:
        last = answer.text.strip().split("\n\n")[-1]
        error = json.loads(last.removeprefix("data: "))["error"]
    else:
        assert answer.status_code == 503
        error = answer.json()["error"]
    assert error["code"] == "engine_closed"
    assert engine.cancelled == {0}
    assert engine.closed
