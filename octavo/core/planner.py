"""One step's plan: a single pass over running and waiting requests in rank order.

There is no prefill phase and no decode phase: each request has known and computed tokens, and a
step lets requests catch up within the budget. Best rank first, victims from the other end, so no
planned row is ever undone. Knows no block ids, no tensors and no results.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.batch import Row
from octavo.core.cache import KVCache
from octavo.core.match import Match, Wait
from octavo.core.policies import Policies
from octavo.core.request import Request
from octavo.core.roster import Roster
from octavo.core.totals import Totals

HIT_BLOCKS_PER_STEP = 16_384  # bounds the time that sharing cached blocks takes within one step


@dataclass(slots=True)
class _Pass:
    """What is left to give. `planned` of the running, `looked_at` of the waiting had their turn."""

    left_tokens: int
    seats: int
    latecomers_only: bool
    now: float
    rows: list[Row]
    admitting: bool = True
    planned: int = 0
    looked_at: int = 0
    kept_seats: int = 0  # for preempted beams, which want them when their siblings are done
    hit_blocks: int = 0
    owed_blocks: int | None = None  # what running requests still miss; None: count again


class Planner:
    def __init__(
        self,
        cache: KVCache,
        roster: Roster,
        *,
        budget_tokens: int,
        policies: Policies,
        totals: Totals,
    ) -> None:
        self._cache = cache
        self._roster = roster
        self._budget = budget_tokens
        self._policies = policies
        self._totals = totals

    def plan(self, now: float) -> list[Row]:
        """The rows of the next step.

        Beams that only wait for their siblings must not keep these, or anyone, from running: when
        nobody could be planned beside them, they give up their blocks, the last in rank first.
        """
        while True:
            step = self._pass(now)
            if step.rows or not self._idle_gives_way(step, None):
                return step.rows

    def _pass(self, now: float) -> _Pass:
        running = self._roster.running
        step = _Pass(
            # One token is set aside for each running one that has something to compute.
            left_tokens=self._budget - sum(each.reported is None for each in running),
            seats=self._roster.seats_left,
            latecomers_only=bool(running) and not self._policies.continuous,
            now=now,
            rows=[],
        )
        while True:
            head = self._head(step)
            if step.planned < len(running) and (
                head is None or running[step.planned].rank < head.rank
            ):
                self._advance(step, running[step.planned])
            elif head is not None:
                self._consider(step, head)
            else:
                return step

    def leave(self, request: Request, now: float) -> None:
        """Take blocks, claims and seat from a request."""
        request.receipt.hold(0, now)
        self._cache.release(request)
        request.drafts = ()
        self._roster.vacate(request)

    def _head(self, step: _Pass) -> Request | None:
        """The best waiting request to consider. A static batch still takes in those who parked."""
        waiting = self._roster.waiting
        while step.looked_at < len(waiting) and not self._may_enter(step, waiting[step.looked_at]):
            step.kept_seats += waiting[step.looked_at].reported is not None
            step.looked_at += 1
        if step.admitting and step.looked_at < len(waiting):
            return waiting[step.looked_at]
        return None

    def _may_enter(self, step: _Pass, request: Request) -> bool:
        """A beam that has reported computes nothing; one that was born late is of its batch."""
        if request.reported is not None:
            return False
        return not step.latecomers_only or request.wait is not None or request.rank[2] > 0

    # -- running requests -------------------------------------------------------------------------

    def _advance(self, step: _Pass, request: Request) -> None:
        """Plan a running request: one token, and of the rest of the budget what it can use."""
        if request.reported is not None:
            step.planned += 1
            return
        n = 1
        if request.behind > 1:
            room = max(0, request.max_total - len(request.tokens) - 1)
            request.drafts = request.drafts[:room]
            n += self._policies.chunk(request.behind - 1, step.left_tokens)
        while self._cache.reserve(request, n) is not None:
            if request.drafts:
                request.drafts = ()
                n = 1 + self._policies.chunk(request.behind - 1, step.left_tokens)
            elif not self._make_room(step, request):
                self._totals.stalls += 1
                step.admitting = False
                step.left_tokens += 1
                step.planned += 1
                return
        step.left_tokens -= n - 1
        step.planned += 1
        step.rows.append(self._row(request, n, step.now))

    def _make_room(self, step: _Pass, request: Request) -> bool:
        """Preempt the last in rank. If that is `request`, a sibling that only waits gives way; if
        that is `request` alone, the oldest pin yields."""
        running = self._roster.running
        if running[-1] is not request:
            self._preempt(step)
            step.admitting = False
            return True
        if self._idle_gives_way(step, request):
            step.admitting = False
            return True
        if len(running) > 1:
            return False
        yielded = self._cache.unpin_oldest()
        assert yielded, "a lone request was refused"
        return True

    def _row(self, request: Request, n: int, now: float) -> Row:
        table = request.table
        assert table is not None
        start = request.computed
        end = start + n
        known = len(request.tokens)
        samples = end >= known
        logits_from = known - 1 if samples else end
        if request.scored < request.n_prompt:
            logits_from = min(logits_from, max(start, request.scored))
        request.receipt.hold(len(table), now)
        drafts = request.drafts[: max(0, end - known)]
        return Row(request, request.seat, start, end, table.stored, logits_from, drafts, samples)

    def _idle_gives_way(self, step: _Pass, sibling: Request | None) -> bool:
        """Preempt the last in rank of the beams that only wait: of `sibling`'s group, or of all.

        It has no row in this step, so none is undone.
        """
        if sibling is not None and sibling.beams is None:
            return False
        running = self._roster.running
        for at in range(len(running) - 1, -1, -1):
            each = running[at]
            if each.reported is None or (sibling is not None and each.beams is not sibling.beams):
                continue
            if at < step.planned:
                step.planned -= 1
            if sibling is not None and each.rank < sibling.rank:
                step.looked_at += 1  # it joins those who wait before `sibling`'s place among them
            self._preempt(step, at)
            return True
        return False

    def _preempt(self, step: _Pass, at: int = -1) -> None:
        """Take everything from the last in rank; it computes again what the cache loses."""
        victim = self._roster.running.pop(at)
        self._totals.preemptions += 1
        victim.receipt.preemptions += 1
        self.leave(victim, step.now)
        self._roster.queue(victim)
        step.left_tokens += victim.reported is None
        step.seats += 1
        step.owed_blocks = None

    # -- waiting requests -------------------------------------------------------------------------

    def _consider(self, step: _Pass, request: Request) -> None:
        """Admit the best waiting request, park it, or stop admitting in this step."""
        if self._cache.parked(request):
            self._pass_over(step)
            return
        while True:
            found = self._cache.match(request)
            if isinstance(found, Wait):
                self._cache.park(request, found)
                self._pass_over(step)
                return
            n = self._policies.chunk(len(request.tokens) - found.restart, step.left_tokens)
            if n > 0 and self._fits_now(step, request, found):
                self._admit(step, request, found, n)
                return
            if self._worth_preempting(step, request, found):
                self._preempt(step)
            elif self._worth_a_sibling(step, n) and self._idle_gives_way(step, request):
                continue
            elif self._roster.running or not self._cache.unpin_oldest():
                step.admitting = False
                return

    def _pass_over(self, step: _Pass) -> None:
        """A request that waits for others' blocks keeps a seat free for when they are there."""
        step.seats -= 1
        step.looked_at += 1

    def _seats(self, step: _Pass, request: Request) -> int:
        """Seats for `request`. A beam may take what is kept for its siblings, nobody else."""
        return step.seats - (step.kept_seats if request.rank[2] == 0 else 0)

    def _fits_now(self, step: _Pass, request: Request, match: Match) -> bool:
        """Room for all known tokens beside what the running ones still need for theirs."""
        if self._seats(step, request) <= 0 or step.hit_blocks > HIT_BLOCKS_PER_STEP:
            return False
        if step.owed_blocks is None:
            step.owed_blocks = sum(map(self._cache.owed, self._roster.running))
        cost = self._cache.cost(request, match, len(request.tokens))
        return cost + step.owed_blocks <= self._cache.pool.available

    def _worth_preempting(self, step: _Pass, request: Request, match: Match) -> bool:
        """Whether all unplanned running requests of strictly worse priority make room together."""
        running = self._roster.running
        victims = [each for each in running[step.planned :] if each.priority > request.priority]
        if not victims or step.hit_blocks > HIT_BLOCKS_PER_STEP:
            return False
        left_tokens = step.left_tokens + sum(each.reported is None for each in victims)
        seats = self._seats(step, request) + len(victims)
        if seats <= 0 or not self._policies.chunk(len(request.tokens) - match.restart, left_tokens):
            return False
        staying = running[: len(running) - len(victims)]
        cost = self._cache.cost(request, match, len(request.tokens))
        needed = cost + sum(map(self._cache.owed, staying))
        return needed <= self._cache.pool.available + self._cache.freed_by(victims)

    def _worth_a_sibling(self, step: _Pass, n: int) -> bool:
        """Whether blocks or seats are what is missing, so that it helps to have more of them."""
        return n > 0 and step.hit_blocks <= HIT_BLOCKS_PER_STEP

    def _admit(self, step: _Pass, request: Request, match: Match, n: int) -> None:
        refusal = self._cache.admit(request, match, n)
        assert refusal is None, "less was needed than was free, and yet refused"
        self._roster.seat(step.looked_at, step.planned)
        step.planned += 1
        step.seats -= 1
        step.left_tokens -= n
        step.hit_blocks += match.n_tokens // self._cache.block_tokens
        if step.owed_blocks is not None:
            step.owed_blocks += self._cache.owed(request)
        n_read = min(match.restart, request.n_prompt)
        fresh = request.receipt.take_read(n_read, waited_from=request.waited_from)
        request.waited_from = None
        if request.receipt.admitted_at is None:
            request.receipt.admitted_at = step.now
            self._count_query(request, fresh)
        step.rows.append(self._row(request, n, step.now))

    def _count_query(self, request: Request, n_hit: int) -> None:
        """Once per request. A fork asks nothing of the index, so it is not counted."""
        if request.chain.root is not None and request.source is None and request.rank[2] == 0:
            self._totals.prefix_query_tokens += request.n_prompt
            self._totals.prefix_hit_tokens += n_hit
