"""One real server on an ephemeral port over the fake engine, shared by all tests here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import openai
import pytest

from octavo.server.access.guard import LOOPBACK
from octavo.server.app import create_app
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, make_server
from tests.server.fake_engine import FakeEngine

LIMITS = ServerLimits(
    body_bytes=100_000,
    inline_bytes=10_000,
    prompts=8,
    choices=16,
    header_seconds=1.0,
    body_seconds=1.0,
    stall_seconds=0.5,
    drain_seconds=1.0,
)


@dataclass
class Served:
    engine: FakeEngine
    port: int
    client: openai.OpenAI
    http: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def running() -> Iterator[Served]:
    engine = FakeEngine()
    listener = bound_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = make_server(create_app(engine, limits=LIMITS, hosts=LOOPBACK), LIMITS)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{port}"
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=10) as client,
        httpx.Client(base_url=url, timeout=10) as http,
    ):
        yield Served(engine, port, client, http)
    server.should_exit = True
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert engine.closed


@pytest.fixture
def served(running: Served) -> Served:
    running.engine.reset()
    return running


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait for something that another thread brings about."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5
        while not condition():
            assert time.monotonic() < deadline, "it did not come about within 5 s"
            time.sleep(0.01)

    return wait
