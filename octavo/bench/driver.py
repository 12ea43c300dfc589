"""An engine in this process under load: submits, steps, and notes when tokens come.

One thread does it all, so what is measured is the engine and nothing around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from octavo.bench.datasets import Prompt
from octavo.bench.record import Record
from octavo.core.errors import OctavoError
from octavo.core.sampling import SamplingParams
from octavo.engine.engine import Engine
from octavo.engine.session import Session
from octavo.engine.types import Chunk, GenerateRequest


class Driver:
    """Greedy, and no end-of-sequence token ends an answer: its length is the load's to say."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._engine = engine
        self._clock = clock
        self._running: dict[int, Session] = {}  # by the id of its record

    @property
    def has_room(self) -> bool:
        return self._engine.room > 0

    @property
    def busy(self) -> bool:
        return self._engine.busy

    def step(self) -> None:
        self._engine.step()

    def submit(self, prompt: Prompt, *, max_tokens: int | None = None, choices: int = 1) -> Record:
        """Send one request of so many `choices`; one that is refused has its reason as `error`.

        `max_tokens`: what it says it may generate at most, if that is more than it will: then it
        is ended from outside, as an end-of-sequence token would.
        """
        record = Record(prompt_tokens=len(prompt.token_ids), sent_at=self._clock())
        params = SamplingParams(
            temperature=0,
            ignore_eos=True,
            max_tokens=max(prompt.output_tokens, max_tokens or 0),
            n=choices,
        )
        request = GenerateRequest(prompt_token_ids=prompt.token_ids, params=params)
        try:
            prepared = self._engine.prepare(request)
            take = partial(self._take, record, choices * prompt.output_tokens)
            self._running[id(record)] = self._engine.submit(prepared, take)
        except OctavoError as error:
            record.error, record.ended_at = error.message, self._clock()
        return record

    def end(self, record: Record) -> None:
        """Have a request end before the next step. One that has ended stays as it is."""
        session = self._running.get(id(record))
        if session is not None:
            self._engine.cancel(session)

    def _take(self, record: Record, wanted: int, chunk: Chunk) -> None:
        now = self._clock()
        if chunk.token_ids:
            record.piece_times.append(now)
            record.output_tokens += len(chunk.token_ids)
        if chunk.finish_reason is not None:
            self._running.pop(id(record), None)
            record.ended_at = now
            record.cached_tokens = chunk.usage.cached_tokens if chunk.usage else 0
            if chunk.finish_reason == "error":
                record.error = chunk.error or "the engine failed on this request"
        elif record.output_tokens >= wanted:
            self.end(record)


def run(
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int | None = None,
    choices: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Record]:
    """All of `prompts` at once, or as fast as the engine's queue takes them. In their order."""
    driver = Driver(engine, clock=clock)
    records: list[Record] = []
    while len(records) < len(prompts) or driver.busy:
        while len(records) < len(prompts) and driver.has_room:
            prompt = prompts[len(records)]
            records.append(driver.submit(prompt, max_tokens=max_tokens, choices=choices))
        driver.step()
    return records
