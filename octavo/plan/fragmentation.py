"""Where the memory for K and V goes while requests come and go: tokens, reservations, holes.

Plays requests against an allocator until its shares are steady. The cases are those of figure 2 of
the PagedAttention paper (Kwon et al., 2023): contiguous buffers from a buddy allocator, sized by
the maximum, by a power of two or by an oracle, against blocks. Knows slots, not bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.plan.fits import power_of_two
from octavo.plan.lengths import Pair

STEPS, FEWEST_STEPS = 6000, 600  # of one token for each running request; a third warms up
MOST_WORK = 3_000_000  # requests times steps: a second or two


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of all slots: holding tokens, reserved for tokens to come, reserved and never used, and
    outside every reservation. They sum to 1."""

    tokens: float
    reserved: float
    internal: float
    external: float


class Memory(Protocol):
    """Slots that requests are given."""

    def admit(self, request: Pair) -> Grant | None:
        """Slots for a request that starts, or None where there is no room."""

    def grow(self, grant: Grant) -> bool:
        """One more token; False where there is no room for it."""

    def release(self, grant: Grant) -> None: ...


@dataclass(slots=True, eq=False)
class Grant:
    """One running request. `size` slots are its own, from `offset` where they are contiguous."""

    request: Pair
    tokens: int
    size: int
    offset: int = 0
    chunk: int = 0

    @property
    def final(self) -> int:
        return self.request.prompt + self.request.answer


class Contiguous:
    """One buffer for each request, cut from power-of-two chunks (a buddy allocator)."""

    def __init__(self, slots: int, size: Callable[[Pair], int]) -> None:
        self._size = size
        self._free: set[tuple[int, int]] = set()  # (chunk, offset)
        offset = 0
        for bit in reversed(range(slots.bit_length())):
            if slots >> bit & 1:
                self._free.add((1 << bit, offset))
                offset += 1 << bit

    def admit(self, request: Pair) -> Grant | None:
        size = self._size(request)
        wanted = power_of_two(size)
        found = min((one for one in self._free if one[0] >= wanted), default=None)
        if found is None:
            return None
        self._free.remove(found)
        chunk, offset = found
        while chunk > wanted:
            chunk //= 2
            self._free.add((chunk, offset + chunk))
        return Grant(request, request.prompt, size, offset, chunk)

    def grow(self, grant: Grant) -> bool:
        grant.tokens += 1
        return True

    def release(self, grant: Grant) -> None:
        chunk, offset = grant.chunk, grant.offset
        while (chunk, offset ^ chunk) in self._free:
            self._free.remove((chunk, offset ^ chunk))
            offset &= ~chunk
            chunk *= 2
        self._free.add((chunk, offset))


class Paged:
    """Blocks as they are needed."""

    def __init__(self, slots: int, block_tokens: int) -> None:
        self._block = block_tokens
        self._free = slots // block_tokens

    def admit(self, request: Pair) -> Grant | None:
        blocks = max(1, -(-request.prompt // self._block))
        if blocks > self._free:
            return None
        self._free -= blocks
        return Grant(request, request.prompt, blocks * self._block)

    def grow(self, grant: Grant) -> bool:
        if grant.tokens == grant.size:
            if not self._free:
                return False
            self._free -= 1
            grant.size += self._block
        grant.tokens += 1
        return True

    def release(self, grant: Grant) -> None:
        self._free += grant.size // self._block


def steps_for(requests: Sequence[Pair], *, slots: int) -> int | None:
    """Steps that bound the work with as many running as the slots can hold; None: too many run."""
    mean = max(1, sum(one.prompt + one.answer for one in requests) // len(requests))
    affordable = MOST_WORK // max(1, slots // mean)
    return min(STEPS, affordable) if affordable >= FEWEST_STEPS else None


def shares(memory: Memory, requests: Sequence[Pair], *, slots: int, steps: int) -> Shares:
    """Mean shares once the memory is full, with `requests` waiting over and over."""
    waiting, running = deque(requests), list[Grant]()
    sums, warm_up = [0, 0, 0], steps // 3
    for step in range(steps):
        while (grant := memory.admit(waiting[0])) is not None:
            running.append(grant)
            waiting.rotate(-1)
        running = _grown(memory, running, waiting)
        if step >= warm_up:
            sums[0] += sum(one.tokens for one in running)
            # Blocks reserve nothing for tokens to come beyond their last block.
            sums[1] += sum(min(one.final, one.size) - one.tokens for one in running)
            sums[2] += sum(one.size - min(one.final, one.size) for one in running)
    tokens, reserved, internal = (total / (steps - warm_up) / slots for total in sums)
    return Shares(
        tokens=tokens,
        reserved=reserved,
        internal=internal,
        external=1 - tokens - reserved - internal,
    )


def _grown(memory: Memory, running: list[Grant], waiting: deque[Pair]) -> list[Grant]:
    """One step: the oldest first; whoever is done leaves, and the youngest are put back to wait
    where there is no room."""
    kept: list[Grant] = []
    queue = deque(running)
    while queue:
        grant = queue.popleft()
        if grant.tokens >= grant.final:
            memory.release(grant)
            continue
        while not memory.grow(grant):
            victim = queue.pop() if queue else grant
            memory.release(victim)
            waiting.appendleft(victim.request)
            if victim is grant:
                break
        else:
            kept.append(grant)
    return kept


def policies(max_tokens: int) -> dict[str, Callable[[Pair], int]]:
    """Sizes of a contiguous buffer: the maximum, the answer's next power of two, the truth."""
    return {
        "reserved, maximum": lambda _: max_tokens,
        "reserved, powers of two": lambda one: min(
            max_tokens, one.prompt + power_of_two(one.answer)
        ),
        "reserved, true length": lambda one: one.prompt + one.answer,
    }


def steady_shares(
    requests: Sequence[Pair], *, slots: int, max_tokens: int, block_tokens: int
) -> dict[str, Shares]:
    """Each way of sharing `slots`; nothing where so many would run that it takes too long.

    Requests must fit in `max_tokens`, and that in `slots`.
    """
    steps = steps_for(requests, slots=slots)
    if steps is None:
        return {}
    found = {
        name: shares(Contiguous(slots, size), requests, slots=slots, steps=steps)
        for name, size in policies(max_tokens).items()
    }
    paged = shares(Paged(slots, block_tokens), requests, slots=slots, steps=steps)
    return found | {f"paged, blocks of {block_tokens}": paged}


MOST_REQUESTS = 2000


def steady_shares_of(
    requests: Sequence[Pair], *, slots: int, max_tokens: int, block_tokens: int
) -> dict[str, Shares]:
    """The same for any trace: requests beyond `max_tokens` are left out, many are thinned, and a
    large room is cut down, since shares do not depend on how often it repeats."""
    fitting = [one for one in requests if 0 < one.prompt + one.answer <= max_tokens]
    if not fitting or slots < max_tokens:
        return {}
    step = -(-len(fitting) // MOST_REQUESTS)
    chosen = fitting[::step]
    mean = sum(one.prompt + one.answer for one in chosen) // len(chosen)
    enough = max(2 * max_tokens, 64 * mean)
    return steady_shares(
        chosen, slots=min(slots, enough), max_tokens=max_tokens, block_tokens=block_tokens
    )
