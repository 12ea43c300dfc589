"""The engine's heartbeat: inbox, schedule, run, update. The same for a model and for a simulator.

One thread steps; any thread may submit. Owns no policy and no tensors; the clock is given.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from octavo.core.batch import Delta, Runner, StepResult
from octavo.core.scheduler import Scheduler

Clock = Callable[[], float]
Command = Callable[[Scheduler, float], None]

log = logging.getLogger(__name__)


class Loop:
    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Clock) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._clock = clock
        self._inbox: deque[Command] = deque()

    def now(self) -> float:
        return self._clock()

    def submit(self, command: Command) -> None:
        """Have `command` run between two steps, on the stepping thread. Safe from any thread."""
        self._inbox.append(command)

    @property
    def busy(self) -> bool:
        return bool(self._inbox) or self.scheduler.busy

    def step(self) -> list[Delta]:
        """One step. A runner that raises ends the requests of this step only."""
        scheduler = self.scheduler
        while self._inbox:
            self._inbox.popleft()(scheduler, self._clock())
        batch = scheduler.schedule(self._clock())
        result = StepResult(())
        if batch.rows:
            try:
                result = self._runner.run(batch)
            except Exception:
                log.exception("step %d failed", batch.step)
                return scheduler.fail("the step failed inside the engine", self._clock())
        return scheduler.update(batch, result, self._clock())
