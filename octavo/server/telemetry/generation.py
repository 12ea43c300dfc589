"""One request to the engine as it is watched from outside: its times, and what it came to.

Knows no text, no HTTP and no wire format: of a chunk it reads the number of tokens and the receipt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from octavo.core.receipt import Receipt
from octavo.engine.types import Chunk, GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished request, all choices together. Tokens and seconds as the names say.

    `ended_at`: unix time. `finishes`: how each choice ended, in that order; `lengths`: its tokens.
    `block_seconds`: blocks held over time, summed over the choices; a block that several requests
    hold counts fully for each of them. `max_tokens`, `n`: as asked for.
    first_token_seconds  from the arrival to the first token that could be sent
    queue, prefill, decode seconds  from queued to admitted, to the first token, to the last one;
                         None for a stage that was not reached
    """

    ended_at: float
    prompt_tokens: int
    read_tokens: int
    written_5m_tokens: int
    written_1h_tokens: int
    written_implicit_tokens: int
    unkept_tokens: int
    output_tokens: int
    finishes: tuple[str, ...]
    lengths: tuple[int, ...]
    duration_seconds: float
    first_token_seconds: float | None
    queue_seconds: float | None
    prefill_seconds: float | None
    decode_seconds: float | None
    block_seconds: float
    shared_in_flight_tokens: int
    lost_slots: int
    recomputed_tokens: int
    max_tokens: int | None
    n: int

    @property
    def finish(self) -> str:
        """The gravest of the choices' ends, for a place where there is room for one."""
        return next(each for each in ("error", "abort", *self.finishes) if each in self.finishes)


class Witness(Protocol):
    """Who hears of what is watched."""

    def first_token(self, seconds: float) -> None: ...
    def gap(self, seconds: float) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...


class Generation:
    """A watch over one request; `arrived_at` is on the engine's clock. For one event loop."""

    def __init__(self, request: GenerateRequest, witness: Witness, *, arrived_at: float) -> None:
        params = request.params
        self._witness = witness
        self._arrived_at = arrived_at
        self._max_tokens = None if params is None else params.max_tokens
        self._n = 1 if params is None else params.n
        self._last_at: dict[int, float] = {}
        self._lengths: dict[int, int] = {}
        self._finishes: dict[int, str] = {}
        self._receipts: dict[int, Receipt] = {}  # by choice; the answers of a search share one
        self.first_token_seconds: float | None = None
        self.prompt_tokens: int | None = None
        self.outcome: Outcome | None = None

    def accepted(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens

    @property
    def output_tokens(self) -> int:
        """Generated so far."""
        return sum(self._lengths.values())

    def take(self, chunk: Chunk, now: float) -> None:
        """A chunk was made in the step that ended at `now`."""
        if chunk.token_ids:
            self._take_tokens(chunk.choice, len(chunk.token_ids), now)
        if chunk.finish_reason is not None:
            self._finishes[chunk.choice] = chunk.finish_reason
            if chunk.receipt is not None:
                self._receipts[chunk.choice] = chunk.receipt
        if chunk.usage is not None:
            self.prompt_tokens = chunk.usage.prompt_tokens
            self.outcome = self._settle(now)
            self._witness.ended(self.outcome)

    def _take_tokens(self, choice: int, n_tokens: int, now: float) -> None:
        last = self._last_at.get(choice)
        if last is not None:
            self._witness.gap(now - last)
        self._last_at[choice] = now
        self._lengths[choice] = self._lengths.get(choice, 0) + n_tokens
        if self.first_token_seconds is None:
            self.first_token_seconds = now - self._arrived_at
            self._witness.first_token(self.first_token_seconds)

    def _settle(self, now: float) -> Outcome:
        receipts = list({id(each): each for each in self._receipts.values()}.values())
        # The prompt's account is the first choice's: the others began as its forks.
        leader = self._receipts.get(0, Receipt())
        last_at = max((each.finished_at or 0.0 for each in receipts), default=None)
        choices = sorted(self._finishes)
        return Outcome(
            ended_at=time.time(),
            prompt_tokens=self.prompt_tokens or 0,
            read_tokens=leader.read,
            written_5m_tokens=leader.written_5m,
            written_1h_tokens=leader.written_1h,
            written_implicit_tokens=leader.written_implicit,
            unkept_tokens=leader.unkept,
            output_tokens=self.output_tokens,
            finishes=tuple(self._finishes[choice] for choice in choices),
            lengths=tuple(self._lengths.get(choice, 0) for choice in choices),
            duration_seconds=now - self._arrived_at,
            first_token_seconds=self.first_token_seconds,
            queue_seconds=_between(leader.queued_at, leader.admitted_at),
            prefill_seconds=_between(leader.admitted_at, leader.first_token_at),
            decode_seconds=_between(leader.first_token_at, last_at),
            block_seconds=sum(each.block_seconds for each in receipts),
            shared_in_flight_tokens=sum(each.shared_in_flight for each in receipts),
            lost_slots=sum(each.slots_lost for each in receipts),
            recomputed_tokens=sum(each.recomputed for each in receipts),
            max_tokens=self._max_tokens,
            n=self._n,
        )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
