"""Who computes what in the next step: one pass over running and waiting requests in rank order.

There is no prefill phase and no decode phase: each request has known and computed tokens, and a
step lets requests catch up within the budget. Owns the two queues and the seats; knows no block
ids, no tensors, no text and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.core.batch import Batch, Delta, Row, RowResult, StepResult
from octavo.core.cache import KVCache, Refusal
from octavo.core.match import Match
from octavo.core.policies import Policies, whole
from octavo.core.request import Finish, Request
from octavo.core.roster import Roster

HIT_BLOCKS_PER_STEP = 16_384  # bounds the time that sharing cached blocks takes within one step


@dataclass(slots=True)
class Totals:
    """Counts since the start. Tokens where the name says so; a request counts its prompt once."""

    steps: int = 0
    requests: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    stalls: int = 0


@dataclass(slots=True)
class _Pass:
    """What is left to give in one pass. `planned` of the running requests have had their turn."""

    left_tokens: int
    seats: int
    admitting: bool
    now: float
    rows: list[Row]
    planned: int = 0
    looked_at: int = 0
    hit_blocks: int = 0
    owed_blocks: int | None = None  # what running requests still miss; None: count again


class Scheduler:
    def __init__(
        self,
        cache: KVCache,
        *,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int = 128,
        policies: Policies | None = None,
    ) -> None:
        assert 0 < max_num_seqs <= max_num_batched_tokens
        self.cache = cache
        self.policies = Policies() if policies is None else policies
        self.totals = Totals()
        self._roster = Roster(max_num_seqs)
        self.running = self._roster.running
        self.waiting = self._roster.waiting
        self._budget = max_num_batched_tokens
        self._arrivals = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    # -- entering and leaving -------------------------------------------------------------------

    def add(self, request: Request, now: float) -> Refusal | None:
        """Queue a request, or refuse one that could never run. Clamps its length to what fits."""
        assert request.tokens, "an empty prompt reached the core"
        refusal = self.never_fits(request)
        if refusal is not None:
            return refusal
        request.rank = (request.priority, self._arrivals)
        self._arrivals += 1
        self.totals.requests += 1
        request.receipt.queued_at = now
        self._roster.queue(request)
        return None

    def never_fits(self, request: Request) -> Refusal | None:
        """Refusal if `request` could not run even alone. Clamps `max_total` to what can be held."""
        request.max_total = min(request.max_total, self.cache.capacity_tokens + 1)
        if self.policies.chunk is whole:
            # An unsplit prompt that was preempted must fit the budget with all it has generated.
            request.max_total = min(request.max_total, self._budget + 1)
        if self.policies.chunk is whole and request.n_prompt > self._budget:
            blocks = self.cache.spec.blocks
            budget = blocks(self._budget)
            return Refusal(blocks(request.n_prompt), budget, budget)
        return self.cache.fits(request)

    def end(self, request: Request, finish: Finish, now: float) -> None:
        """End a request from outside, between two steps: what it has computed is committed."""
        if request.finish is None:
            self._roster.remove(request)
            self._close(request, finish, now)

    def _close(self, request: Request, finish: Finish, now: float) -> None:
        """Settle the receipt, give everything up. The caller takes it off its queue."""
        receipt = request.receipt
        request.finish = finish
        receipt.finished_at = now
        receipt.tokens = len(request.tokens)
        if request.table is not None:
            receipt.stored = request.table.stored
            receipt.blocks = len(request.table)
            receipt.slots = receipt.blocks * self.cache.block_tokens
        self._leave(request, now)

    def _leave(self, request: Request, now: float) -> None:
        request.receipt.hold(0, now)
        self.cache.release(request)
        request.drafts = ()
        self._roster.vacate(request)

    # -- planning -------------------------------------------------------------------------------

    def schedule(self, now: float) -> Batch:
        """The next step's batch. Best rank first; victims are taken from the other end."""
        self.cache.tick(now)
        self.totals.steps += 1
        running = self.running
        step = _Pass(
            left_tokens=self._budget - len(running),  # one token is set aside for each running one
            seats=self._roster.seats_left,
            admitting=self.policies.admits(running),
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
                break
        vacated = self._roster.take_vacated() if step.rows else []
        return Batch(self.totals.steps, step.rows, self.cache.take_moves(), vacated)

    def _head(self, step: _Pass) -> Request | None:
        if step.admitting and step.looked_at < len(self.waiting):
            return self.waiting[step.looked_at]
        return None

    def _advance(self, step: _Pass, request: Request) -> None:
        """Plan a running request: one token, and of the rest of the budget what it can use."""
        n = 1
        behind = request.behind
        if behind > 1:
            room = max(0, request.max_total - len(request.tokens) - 1)
            request.drafts = request.drafts[:room]
            n += self.policies.chunk(request.behind - 1, step.left_tokens)
        while self.cache.reserve(request, n) is not None:
            if request.drafts:
                request.drafts = ()
                n = 1 + self.policies.chunk(request.behind - 1, step.left_tokens)
            elif not self._make_room(step, request):
                self.totals.stalls += 1
                step.admitting = False
                step.left_tokens += 1
                step.planned += 1
                return
        step.left_tokens -= n - 1
        step.planned += 1
        step.rows.append(self._row(request, n, step.now))

    def _make_room(self, step: _Pass, request: Request) -> bool:
        """Preempt the last in rank; if that is `request` alone, the oldest pin yields."""
        victim = self.running[-1]
        if victim is not request:
            self._preempt(step, victim)
            step.admitting = False
            return True
        if len(self.running) > 1:
            return False
        yielded = self.cache.unpin_oldest()
        assert yielded, "a lone request was refused"
        return True

    def _consider(self, step: _Pass, request: Request) -> None:
        """Admit the best waiting request, park it, or stop admitting in this step."""
        full_house = step.seats <= 0 or step.left_tokens <= 0
        if full_house and not self._outranks(step, request):
            step.admitting = False
            return
        if self.cache.parked(request):
            self._pass_over(step)
            return
        while True:
            match = self.cache.match(request)
            if match.wait is not None:
                self.cache.park(request, match)
                self._pass_over(step)
                return
            n = self.policies.chunk(len(request.tokens) - match.restart, step.left_tokens)
            if n <= 0 or step.hit_blocks > HIT_BLOCKS_PER_STEP:
                step.admitting = False
                return
            if self._fits_now(step, request, match):
                self._admit(step, request, match, n)
                return
            if self._outranks(step, request):
                self._preempt(step, self.running[-1])
            elif self.running or not self.cache.unpin_oldest():
                step.admitting = False
                return

    def _pass_over(self, step: _Pass) -> None:
        """A request that waits for others' blocks keeps a seat free for when they are there."""
        step.seats -= 1
        step.looked_at += 1

    def _outranks(self, step: _Pass, request: Request) -> bool:
        """Whether a running request of strictly worse priority has not been planned yet."""
        running = self.running
        return len(running) > step.planned and running[-1].priority > request.priority

    def _fits_now(self, step: _Pass, request: Request, match: Match) -> bool:
        """Room for all known tokens beside what the running ones still need for theirs."""
        if step.seats <= 0:
            return False
        if step.owed_blocks is None:
            step.owed_blocks = sum(map(self.cache.owed, self.running))
        cost = self.cache.cost(request, match, len(request.tokens))
        return cost + step.owed_blocks <= self.cache.pool.available

    def _admit(self, step: _Pass, request: Request, match: Match, n: int) -> None:
        refusal = self.cache.admit(request, match, n)
        assert refusal is None, "less was needed than was free, and yet refused"
        self._roster.seat(step.looked_at, step.planned)
        step.planned += 1
        step.seats -= 1
        step.left_tokens -= n
        step.hit_blocks += match.n_tokens // self.cache.block_tokens
        if step.owed_blocks is not None:
            step.owed_blocks += self.cache.owed(request)
        n_read = min(match.restart, request.n_prompt)
        fresh = request.receipt.take_read(n_read, waited_from=request.waited_from)
        request.waited_from = None
        if request.receipt.admitted_at is None:
            request.receipt.admitted_at = step.now
            self._count_query(request, fresh)
        step.rows.append(self._row(request, n, step.now))

    def _count_query(self, request: Request, n_hit: int) -> None:
        """Once per request. A fork asks nothing of the index, so it is not counted."""
        if request.chain.root is not None and request.source is None:
            self.totals.prefix_query_tokens += request.n_prompt
            self.totals.prefix_hit_tokens += n_hit

    def _row(self, request: Request, n: int, now: float) -> Row:
        table = request.table
        assert table is not None
        start = request.computed
        end = start + n
        known = len(request.tokens)
        samples = end >= known
        logits_from = known - 1 if samples else end
        if request.scored < request.n_prompt:
            logits_from = start
        request.receipt.hold(len(table), now)
        drafts = request.drafts[: max(0, end - known)]
        return Row(request, request.seat, start, end, table.stored, logits_from, drafts, samples)

    def _preempt(self, step: _Pass, victim: Request) -> None:
        """Take everything from the last in rank; it will compute again what the cache loses."""
        popped = self.running.pop()
        assert popped is victim
        self.totals.preemptions += 1
        victim.receipt.preemptions += 1
        self._leave(victim, step.now)
        self._roster.queue(victim)
        step.left_tokens += 1
        step.seats += 1
        step.owed_blocks = None

    # -- results --------------------------------------------------------------------------------

    def update(self, batch: Batch, result: StepResult, now: float) -> list[Delta]:
        """Take in what a step computed. Returns what changed for whom."""
        deltas: list[Delta] = []
        ended = False
        for row, row_result in zip(batch.rows, result.rows, strict=True):
            delta = self._take(row, row_result, now)
            if delta is not None:
                deltas.append(delta)
                ended = ended or delta.finish is not None
        if ended:
            self._roster.drop_finished()
        return deltas

    def _take(self, row: Row, result: RowResult, now: float) -> Delta | None:
        request = row.request
        request.drafts = ()
        if result.error is not None:
            self._close(request, Finish.ERROR, now)
            return Delta(request, (), result.error, Finish.ERROR)
        tokens: Sequence[int] = ()
        finish = None
        if row.samples:
            known = len(request.tokens)
            finish = self._accept(request, result.tokens)
            tokens = request.tokens[known:]
            self.totals.generated_tokens += len(tokens)
        end = min(row.end, len(request.tokens) - 1) if row.samples else row.end
        self.totals.computed_tokens += end - row.start
        request.receipt.take_work(row.start, end)
        request.computed = end
        if request.scored < request.n_prompt:
            request.scored = min(request.n_prompt, end)
        self.cache.commit(request)
        if request.pins:
            self._pin(request)
        if tokens and request.receipt.first_token_at is None:
            request.receipt.take_first_token(request.n_prompt, now)
        if finish is not None:
            self._close(request, finish, now)
        elif not tokens and result.scores is None:
            return None
        return Delta(request, tokens, result.scores, finish)

    def _accept(self, request: Request, tokens: Sequence[int]) -> Finish | None:
        """Append confirmed tokens; a stop token or the limit cuts the rest off."""
        limits = request.limits
        for token in tokens:
            request.tokens.append(token)
            if token in limits.stop_ids:
                return Finish.STOP
            if len(request.tokens) >= request.max_total:
                return Finish.LENGTH
        return None

    def _pin(self, request: Request) -> None:
        table = request.table
        assert table is not None
        for wish in request.pins:
            if table.stored >= wish.n_tokens:
                self.cache.pin(wish.name, request, wish.n_tokens, wish.ttl_seconds)
        request.pins = tuple(wish for wish in request.pins if table.stored < wish.n_tokens)

    def fail(self, reason: str, now: float) -> list[Delta]:
        """A whole step failed: end what was running, keep what waits, publish nothing."""
        deltas = []
        for request in self.running:
            self._close(request, Finish.ERROR, now)
            deltas.append(Delta(request, (), reason, Finish.ERROR))
        self._roster.drop_finished()
        return deltas

    def check(self) -> None:
        """Assert the invariants at rest. For tests and debugging."""
        self._roster.check()
        self.cache.check(self.running)
