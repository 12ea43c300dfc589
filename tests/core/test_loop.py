"""The loop: inbox between steps, one clock, and a runner that may raise."""

from __future__ import annotations

import logging

import pytest

from octavo.core import Batch, Finish, Loop, StepResult
from tests.core.desk import Desk


class Fragile:
    """Raises on chosen steps, else passes on."""

    def __init__(self, desk: Desk, bad_steps: set[int]) -> None:
        self.desk = desk
        self.bad_steps = bad_steps

    def run(self, batch: Batch) -> StepResult:
        if batch.step in self.bad_steps:
            raise RuntimeError("a kernel failed")
        return self.desk.runner.run(batch)


def test_commands_run_between_steps_in_order() -> None:
    desk = Desk(100)
    loop = Loop(desk.scheduler, desk.runner, lambda: desk.now)
    a, b = desk.request("a", range(20)), desk.request("b", range(50, 70))
    loop.submit(lambda scheduler, now: scheduler.add(a, now) and None)
    loop.submit(lambda scheduler, now: scheduler.add(b, now) and None)
    loop.submit(lambda scheduler, now: scheduler.end(a, Finish.ABORT, now))
    assert loop.busy
    deltas = loop.step()
    assert [delta.request for delta in deltas] == [b]
    assert a.finish is Finish.ABORT
    while loop.busy:
        loop.step()
    desk.assert_right(b)


def test_a_raising_runner_ends_the_step_not_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(100, seqs=1)
    loop = Loop(desk.scheduler, Fragile(desk, {2}), lambda: desk.now)
    first, second = desk.add("a", range(20), max_tokens=5), desk.add("b", range(20), max_tokens=5)
    loop.step()
    with caplog.at_level(logging.ERROR):
        (delta,) = loop.step()
    assert (delta.request, delta.finish) == (first, Finish.ERROR)
    assert "kernel" not in str(delta.scores)  # what a caller sees tells nothing of our insides
    while loop.busy:
        loop.step()
        desk.scheduler.check()
    desk.assert_right(second)
    desk.assert_empty()


def test_an_idle_step_runs_nothing() -> None:
    desk = Desk(10)
    loop = Loop(desk.scheduler, Fragile(desk, {1}), lambda: desk.now)
    assert loop.step() == []
