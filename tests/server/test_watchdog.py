"""An engine that dies or hangs: everybody is answered, once, and the process ends with status 1."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.core.batch import Batch, StepResult
from octavo.server.access.doors import Doors
from octavo.server.access.watchdog import DIED, Watchdog
from tests.engine.test_async_engine import PacedRunner
from tests.engine.tiny import prompt
from tests.server.fake_engine import MODEL, FakeEngine
from tests.server.faults import COMPLETIONS
from tests.server.live import serving, talker

Eventually = Callable[[Callable[[], bool]], None]
CANARY = "canary-in-the-prompt"
SERVE = """
import ctypes
from octavo.server import listen
from octavo.server.access import watchdog
from octavo.server.app import create_app
from octavo.server.access.doors import Doors
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, serve
from tests.server.fake_engine import FakeEngine
watchdog.LOOK_SECONDS = 0.1
watchdog.EXIT_SECONDS = 5.0
listen.FAILURE_SECONDS = 0.5
engine = FakeEngine()
def script(request):
    engine.work = "one step"
    {hang}
    return ["hang"]
engine.script = script
listener = bound_socket("127.0.0.1", 0)
port = listener.getsockname()[1]
doors, limits = Doors(), ServerLimits(watchdog_seconds=0.5, drain_seconds=0.5)
serve(
    create_app(engine, doors=doors),
    listener,
    limits=limits,
    doors=doors,
    watchdog=watchdog.Watchdog(engine, doors, seconds=limits.watchdog_seconds),
    started=lambda: print(port, flush=True),
)
"""


def test_progress_is_what_counts() -> None:
    engine, doors = FakeEngine(), Doors()
    dog = Watchdog(engine, doors, seconds=3)
    for _ in range(10):  # without work there is nothing to get on with
        dog.look()
    for work in (1, 1, 1, 2, 2, 2, None, 2, 2, 2):
        engine.work = work
        dog.look()
    assert doors.failure is None
    dog.look()
    assert doors.failure == "the engine made no progress for 3 s and was given up"
    assert engine.not_ready == doors.failure
    assert doors.closed


def test_an_engine_that_ends_with_the_server_has_not_failed() -> None:
    engine, doors = FakeEngine(), Doors()
    engine.is_alive = False
    doors.gone = True
    Watchdog(engine, doors, seconds=3).look()
    assert doors.failure is None
    doors.gone = False
    Watchdog(engine, doors, seconds=3).look()
    assert doors.failure == DIED


def test_patience_without_end_and_death() -> None:
    engine, doors = FakeEngine(), Doors()
    engine.work = 1
    dog = Watchdog(engine, doors, seconds=0)
    for _ in range(1000):
        dog.look()
    assert doors.failure is None
    engine.is_alive = False
    dog.look()
    assert doors.failure == DIED


def ended(hang: str) -> tuple[int, str, httpx.Response | None]:
    """Exit status, standard error and the answer of a server whose engine hangs on a request."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE.replace("{hang}", hang)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        answer = None
        try:
            with httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=30) as client:
                answer = client.post(f"{url}{COMPLETIONS}", json={"model": MODEL, "prompt": CANARY})
        except httpx.TransportError:
            pass  # nobody can answer when the interpreter itself hangs
        _, err = process.communicate(timeout=30)
    return process.returncode, err, answer


def test_a_hang_ends_the_process_with_its_stacks_and_no_prompt() -> None:
    code, err, answer = ended("pass")
    assert code == 1
    assert answer is not None
    assert answer.status_code == 503
    assert "made no progress for 0.5 s" in err
    assert "most recent call first" in err
    assert CANARY not in err


def test_a_hang_that_holds_the_interpreter_ends_the_process_too() -> None:
    code, err, answer = ended("ctypes.PyDLL(None).sleep(60)")
    assert (code, answer) == (1, None)
    assert "most recent call first" in err
    assert CANARY not in err


class Hangman(PacedRunner):
    """Says when a step hangs."""

    waits = False

    def run(self, batch: Batch) -> StepResult:
        self.waits = not self.go.is_set()
        return super().run(batch)


class Scene:
    """A real engine behind a real server, and requests in every state."""

    def __init__(self, folder: Path) -> None:
        self.doors = Doors()
        self._serving = serving(
            folder, app={"doors": self.doors}, max_num_seqs=2, max_num_batched_tokens=32
        )
        self.answers: list[tuple[bool, httpx.Response]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Scene:
        self.engine, self.url = self._serving.__enter__()
        loop = self.engine._engine._loop
        self.runner = loop._runner = Hangman(loop._runner, 0.005)
        return self

    def __exit__(self, *error: Any) -> None:
        self.runner.go.set()
        self._serving.__exit__(*error)

    def ask(self, n: int, eventually: Eventually) -> None:
        """Half of them streamed, the first among them; two run and have begun to answer, the others
        wait."""

        def one(i: int) -> None:
            body = {"model": "tiny", "prompt": prompt(20 + i), "max_tokens": 400}
            body |= {"stream": i % 2 == 0, "ignore_eos": True}
            answer = httpx.post(f"{self.url}{COMPLETIONS}", json=body, timeout=30)
            self.answers.append((i % 2 == 0, answer))

        self._threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        first, *others = self._threads
        first.start()
        eventually(lambda: self.begun(1))
        for thread in others:
            thread.start()
        eventually(lambda: self.begun(n))

    def begun(self, n: int) -> bool:
        stats = self.engine.stats()
        return stats.running + stats.waiting == n and stats.generated_tokens > 0

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    talker(tmp_path)
    with Scene(tmp_path) as opened:
        yield opened


def check_told_once(scene: Scene, n: int) -> None:
    """Every request has exactly one end, and it is an error."""
    assert len(scene.answers) == n
    begun = 0
    for _, answer in scene.answers:
        if answer.status_code == 200:
            begun += 1
            events = answer.text.strip().split("\n\n")
            assert [event for event in events if '"error"' in event] == events[-1:]
            assert "[DONE]" not in answer.text
        else:
            assert answer.status_code in (500, 503)
            assert answer.json()["error"]["message"]
    assert begun > 0


def test_everybody_is_answered_when_a_step_never_returns(
    scene: Scene, eventually: Eventually
) -> None:
    scene.ask(8, eventually)
    dog = Watchdog(scene.engine, scene.doors, seconds=3)
    for _ in range(5):
        dog.look()
        before = scene.engine.progress()
        eventually(lambda before=before: scene.engine.progress() != before)
    assert scene.doors.failure is None
    scene.runner.go.clear()
    eventually(lambda: scene.runner.waits)
    for _ in range(6):
        dog.look()
    scene.finish()
    check_told_once(scene, 8)
    assert scene.doors.failure is not None
    # The step comes back after all: nothing more is told, and the thread ends.
    scene.runner.go.set()
    eventually(lambda: not scene.engine._thread.is_alive())


def test_everybody_is_answered_when_the_engines_thread_dies(
    scene: Scene, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ask(8, eventually)

    def die(*args: Any) -> None:
        raise RuntimeError("a bug of the scheduler")

    monkeypatch.setattr(scene.engine._engine.scheduler, "schedule", die)
    eventually(lambda: not scene.engine.alive())
    Watchdog(scene.engine, scene.doors, seconds=0).look()
    scene.finish()
    check_told_once(scene, 8)
    assert scene.doors.failure == DIED


def test_a_step_that_raises_ends_the_running_ones_only(
    scene: Scene, eventually: Eventually
) -> None:
    scene.ask(1, eventually)
    scene.runner.fail_next = True
    scene.finish()
    assert scene.doors.failure is None
    body = {"model": "tiny", "prompt": prompt(20), "max_tokens": 3}
    assert httpx.post(f"{scene.url}{COMPLETIONS}", json=body, timeout=30).status_code == 200


def test_a_tokeniser_that_raises_costs_one_request_only(
    scene: Scene, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = scene.engine._engine

    def broken(*args: Any) -> None:
        raise RuntimeError(CANARY)

    body = {"model": "tiny", "prompt": prompt(20), "max_tokens": 3}
    with monkeypatch.context() as patch:
        patch.setattr(inner._preparer, "prepare", broken)
        answer = httpx.post(f"{scene.url}{COMPLETIONS}", json=body, timeout=30)
    assert answer.status_code == 500
    assert CANARY not in answer.text
    eventually(lambda: inner.room == inner.max_live)
    assert httpx.post(f"{scene.url}{COMPLETIONS}", json=body, timeout=30).status_code == 200
