"""What may wait, for whom and how long. Owns the waiting room's account and its refusals.

It stands between the routes and the engine, so no route can forget it: it gives every key a cache
of its own, keeps shares and bounds, and ends what has waited too long. Knows no wire format.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from octavo.core.errors import Overloaded
from octavo.engine.stats import Cleared, EngineStats
from octavo.engine.stream import Watch
from octavo.engine.types import GenerateRequest
from octavo.server.access.doors import Doors
from octavo.server.access.pace import Pace
from octavo.server.access.timed_stream import Deadlines, TimedStream
from octavo.server.access.visitor import Account, Visitor, visitor
from octavo.server.contract import ChunkStream, HeldEngine, ServedModel
from octavo.server.errors import NO_RETRY, SHUTTING_DOWN, HttpFault
from octavo.server.limits import ServerLimits

Result = TypeVar("Result")

CLOSE = ("connection", "close")
MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
JITTER = 0.2  # so that all who were refused at once do not come back at once


class Ticket:
    """One prompt's part of the accounts. Given back once, whoever comes first."""

    def __init__(self, room: Admission, who: Visitor, places: int) -> None:
        self._room = room
        self.who = who
        self.places = places
        self.tokens = 0
        self.entered = False

    def answered(self) -> None:
        """The first tokens of the answer are there: the prompt has been computed."""
        if self.tokens:
            self._room.give_back(self, done=True, leaves=False)

    def close(self) -> None:
        """The request has ended, or never entered."""
        if self.places:
            self._room.give_back(self, done=False, leaves=True)


class Admission:
    """A `ServedEngine` in front of the engine.

    `n_owners`: of how many owners there are keys; from two on, shares are kept. `isolated`: whether
    keys share no cached blocks. `enter` is also called on the engine's preparing threads.
    """

    def __init__(
        self,
        engine: HeldEngine,
        limits: ServerLimits,
        *,
        doors: Doors,
        n_owners: int = 0,
        isolated: bool = True,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._doors = doors
        self._shared_out = n_owners > 1
        self._isolated = isolated
        self._accounts: defaultdict[str, Account] = defaultdict(Account)
        self._all = Account()
        self._ended_pace = Pace()
        self._prompt_pace = Pace()
        self._lock = threading.Lock()  # guards all four above

    @property
    def info(self) -> ServedModel:
        return self._engine.info

    def token_bytes(self, token_id: int) -> bytes:
        return self._engine.token_bytes(token_id)

    def alive(self) -> bool:
        return self._engine.alive()

    def ready(self) -> str | None:
        """None, or why a balancer should send its requests elsewhere."""
        if self._doors.leaving:
            return self._doors.failure or SHUTTING_DOWN
        if self._all.tokens >= self._limits.waiting_tokens:
            return "too many prompt tokens wait"
        return self._engine.ready()

    def now(self) -> float:
        return self._engine.now()

    def stats(self) -> EngineStats:
        return self._engine.stats()

    async def tokenize(self, request: GenerateRequest) -> list[int]:
        return await self._prepared(lambda: self._engine.tokenize(request))

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return await self._prepared(lambda: self._engine.detokenize(token_ids))

    async def _prepared(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """What only prepares takes a place, too, and has the same time to wait for it."""
        who = self._entering()
        ticket = self._ticket(who, 1)
        deadlines = self._deadlines(who)
        try:
            async with asyncio.timeout_at(deadlines.first):
                return await work()
        except TimeoutError:
            raise self._too_late(1, deadlines.first < deadlines.last) from None
        except Overloaded as error:
            raise self._overloaded(error.message, self._wait_for_places(1)) from None
        finally:
            ticket.close()

    async def clear_cache(self) -> Cleared:
        return await self._engine.clear_cache()

    async def close(self) -> None:
        await self._engine.close()

    async def submit(self, request: GenerateRequest, watch: Watch | None = None) -> ChunkStream:
        """Raises HttpFault 429 or 503 for what is refused, and what the engine raises."""
        who = self._entering()
        if self._isolated and who.key_id:
            # A key's id has no slash, so that no two pairs of key and salt make the same salt.
            request = replace(request, salt=f"{who.key_id}/{request.salt}")
        places = places_of(request)
        ticket = self._ticket(who, places)
        deadlines = self._deadlines(who)
        try:
            async with asyncio.timeout_at(deadlines.first):
                stream = await self._engine.submit(
                    request, watch, admit=lambda tokens: self._enter(ticket, tokens)
                )
        except TimeoutError:
            ticket.close()
            raise self._too_late(places, deadlines.first < deadlines.last) from None
        except Overloaded as error:
            ticket.close()
            raise self._overloaded(error.message, self._wait_for_places(places)) from None
        except BaseException:
            ticket.close()
            raise
        too_late = partial(self._too_late, places)
        return TimedStream(stream, ticket, deadlines=deadlines, too_late=too_late)

    def _entering(self) -> Visitor:
        """Who asks. Raises HttpFault 503 if nobody is let in any more."""
        if self._doors.closed:
            raise HttpFault(503, SHUTTING_DOWN, code="engine_closed", headers=(CLOSE, *waits(None)))
        return visitor.get(Visitor())

    def _deadlines(self, who: Visitor) -> Deadlines:
        """The same for all prompts of an HTTP request."""
        now = asyncio.get_running_loop().time() if who.arrived_at is None else who.arrived_at
        return Deadlines.of(self._limits, who.seconds, now=now)

    def _too_late(self, places: int, queued: bool) -> HttpFault:
        """The refusal of a request whose time is over, in the queue or altogether."""
        if not queued:
            message = "The answer was not finished within the time that it had."
            return HttpFault(504, message, code="deadline_exceeded", headers=NO_RETRY)
        message = f"The request did not begin to run within {self._limits.queue_seconds:g} s."
        wait = self._wait_for_places(places)
        return HttpFault(503, message, code="queue_timeout", headers=waits(wait))

    # -- the accounts -----------------------------------------------------------------------------

    def _ticket(self, who: Visitor, places: int) -> Ticket:
        """Count a prompt in, before any work is spent on it.

        A key that has only this HTTP request is not over its share, whatever it holds: else it
        could never be served.
        """
        ours = self._limits.key_share * self._engine.info.max_live_sequences
        with self._lock:
            account = self._accounts[who.key_id]
            others = account.places - who.account.places
            over = self._shared_out and others and account.places + places > ours
            if not over:
                for each in (account, self._all, who.account):
                    each.places += places
        if over:
            wait = self._wait_for_places(places)
            raise over_share(f"{account.places} requests of this key run or wait", wait)
        return Ticket(self, who, places)

    def _enter(self, ticket: Ticket, tokens: int) -> None:
        """Count a prepared prompt's uncached tokens in. What waits alone, as one HTTP request, may
        be of any size."""
        most = self._limits.waiting_tokens
        share = self._limits.key_share * most
        with self._lock:
            account, everyone = self._accounts[ticket.who.key_id], self._all
            waiting, own = everyone.tokens, account.tokens
            held = ticket.who.account.tokens
            excess = waiting + tokens - most if waiting > held else 0
            over = own + tokens - share if self._shared_out and own > held else 0
            if excess <= 0 and over <= 0 and ticket.places:
                ticket.tokens, ticket.entered = tokens, True
                for each in (account, everyone, ticket.who.account):
                    each.tokens += tokens
        if over > 0:
            wait = self._wait_for_tokens(math.ceil(over))
            raise over_share(f"{own} prompt tokens of this key wait", wait)
        if excess > 0:
            message = f"{waiting} prompt tokens wait, and at most {most} may; try again later"
            raise self._overloaded(message, self._wait_for_tokens(excess))

    def give_back(self, ticket: Ticket, *, done: bool, leaves: bool) -> None:
        """Take a ticket's tokens off the accounts, and its places if it `leaves`."""
        now = time.monotonic()
        with self._lock:
            account = self._accounts[ticket.who.key_id]
            places = ticket.places if leaves else 0
            for each in (account, self._all, ticket.who.account):
                each.tokens -= ticket.tokens
                each.places -= places
            if done:
                self._prompt_pace.note(ticket.tokens, now)
            if places and ticket.entered:  # refusals are quick, and free no place for anybody
                self._ended_pace.note(places, now)
            ticket.tokens = 0
            ticket.places -= places
            if not account.places:
                self._accounts.pop(ticket.who.key_id, None)

    # -- refusals ---------------------------------------------------------------------------------

    def _wait_for_places(self, places: int) -> float | None:
        with self._lock:
            return self._ended_pace.seconds_for(places, time.monotonic())

    def _wait_for_tokens(self, tokens: int) -> float | None:
        with self._lock:
            return self._prompt_pace.seconds_for(tokens, time.monotonic())

    @staticmethod
    def _overloaded(message: str, wait_seconds: float | None) -> HttpFault:
        return HttpFault(503, message, code="overloaded", headers=waits(wait_seconds))


def over_share(what: str, wait_seconds: float | None) -> HttpFault:
    """The refusal of a key that has its share."""
    message = f"{what}, which is its share; try again later."
    return HttpFault(429, message, code="tenant_quota", headers=waits(wait_seconds))


def places_of(request: GenerateRequest) -> int:
    """Choices or beams. What is out of bounds is the engine's to refuse."""
    params = request.params
    if params is None:
        return 1
    counts = (params.n, params.beam_width or 1)
    return max(1, *(each for each in counts if isinstance(each, int)))


def waits(seconds: float | None) -> tuple[tuple[str, str], ...]:
    """When to try again, in the two headers that clients read."""
    seconds = min(max(seconds or 0.0, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
    seconds *= 1 + random.uniform(0, JITTER)
    return (
        ("retry-after", str(math.ceil(seconds))),
        ("retry-after-ms", str(math.ceil(seconds * 1000))),
    )
