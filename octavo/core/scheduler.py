"""The life of requests between steps: entering, planning, taking results in, ending.

Owns the roster and the totals; `planner` decides who computes what. Knows no block ids, no tensors,
no text and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.core.batch import Batch, Delta, Drafter, Row, RowResult, StepResult
from octavo.core.beams import BeamGroup
from octavo.core.cache import KVCache, Refusal
from octavo.core.planner import Planner
from octavo.core.policies import Policies
from octavo.core.request import UNBOUNDED, Finish, Limits, Request
from octavo.core.roster import Roster
from octavo.core.totals import Totals


class Scheduler:
    def __init__(
        self,
        cache: KVCache,
        *,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int = 128,
        policies: Policies | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        assert 0 < max_num_seqs <= max_num_batched_tokens
        self.cache = cache
        self.policies = Policies() if policies is None else policies
        self.totals = Totals()
        self._roster = Roster(max_num_seqs)
        self.running = self._roster.running
        self.waiting = self._roster.waiting
        self._planner = Planner(
            cache,
            self._roster,
            budget_tokens=max_num_batched_tokens,
            policies=self.policies,
            totals=self.totals,
        )
        self._drafter = drafter
        self._budget = max_num_batched_tokens
        self._arrivals = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    # -- entering and leaving -------------------------------------------------------------------

    def add(self, request: Request, now: float) -> Refusal | None:
        """Queue a request, or refuse one that could never run. Clamps its length to what fits."""
        assert request.tokens, "an empty prompt reached the core"
        self._clamp(request)
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        request.rank = (request.priority, self._arrivals, 0)
        self._arrivals += 1
        self.totals.sequences += 1 if request.beams is None else request.beams.rules.n
        request.receipt.queued_at = now
        self._roster.queue(request)
        return None

    def would_refuse(self, n_prompt: int, max_tokens: int) -> Refusal | None:
        """What `add` would say of such a request. Changes nothing; safe from any thread."""
        probe = Request("", [0] * n_prompt, limits=Limits(max_tokens))
        self._clamp(probe)
        return self._refusal(probe)

    @property
    def longest(self) -> int:
        """Tokens that one request may have, prompt and answer. Safe from any thread."""
        longest = self.cache.capacity_tokens + 1  # the last token needs no slot
        # An unsplit prompt that was preempted must fit the budget with all it has generated.
        return longest if self.policies.splits else min(longest, self._budget + 1)

    def _clamp(self, request: Request) -> None:
        request.max_total = min(request.max_total, self.longest)

    def _refusal(self, request: Request) -> Refusal | None:
        if not self.policies.splits and request.n_prompt > self._budget:
            return Refusal(request.n_prompt, self._budget, self._budget, "tokens in one step")
        return self.cache.fits(request)

    def end(self, request: Request, finish: Finish, now: float) -> None:
        """End a request from outside, between two steps: what it has computed is committed.

        A beam search ends as a whole, by its leader.
        """
        if request.beams is not None:
            if not request.beams.over:
                self._end_group(request.beams, finish, None, now)
        elif request.finish is None:
            self._roster.remove(request)
            self._close(request, finish, now)

    def _close(self, request: Request, finish: Finish, now: float) -> None:
        """Settle the receipt, give everything up. The caller takes it off its queue."""
        request.finish = finish
        request.receipt.close(request, now, block_tokens=self.cache.block_tokens)
        self._planner.leave(request, now)
        if self._drafter is not None:
            self._drafter.leave(request)

    # -- a step ---------------------------------------------------------------------------------

    def schedule(self, now: float) -> Batch:
        """The next step's batch. If its results never come, the next call plans it again."""
        self.cache.tick(now)
        self.totals.steps += 1
        if self._drafter is not None:
            self._guess(self._drafter)
        rows = self._planner.plan(now)
        return Batch(self.totals.steps, rows, self.cache.moves(), self._roster.vacated())

    def _guess(self, drafter: Drafter) -> None:
        """Ask for drafts as late as can be: whoever has ended by now needs none."""
        asking = [
            each
            for each in self.running
            if each.speculates and each.behind == 1 and len(each.tokens) > each.n_prompt
        ]
        proposed = drafter.propose(asking, len(self.running))
        for request, drafts in zip(asking, proposed, strict=True):
            request.drafts = drafts

    def update(self, batch: Batch, result: StepResult, now: float) -> list[Delta]:
        """Take in what a step computed. Returns what changed for whom."""
        if batch.rows:
            self._step_done()
        deltas: list[Delta] = []
        ended = False
        groups: dict[BeamGroup, None] = {}  # in the order of their rows
        for row, row_result in zip(batch.rows, result.rows, strict=True):
            if row.request.beams is not None:
                self._take_beam(row, row_result, now)
                groups[row.request.beams] = None
                continue
            delta = self._take(row, row_result, now)
            if delta is not None:
                deltas.append(delta)
                ended = ended or delta.finish is not None
        if ended:
            self._roster.drop_finished()
        self._judge(batch, result)
        return deltas + [delta for group in groups for delta in self._turn(group, now)]

    def fail(self, reason: str, now: float) -> list[Delta]:
        """A whole step failed: end what was running, keep what waits, publish nothing."""
        self._step_done()
        deltas = []
        groups = dict.fromkeys(each.beams for each in self.running if each.beams is not None)
        deltas += [self._end_group(group, Finish.ERROR, reason, now) for group in groups]
        for request in self.running:
            self._close(request, Finish.ERROR, now)
            deltas.append(Delta(request, (), reason, Finish.ERROR))
        self._roster.drop_finished()
        return deltas

    def _step_done(self) -> None:
        self.cache.moved()
        self._roster.settled()

    # -- results --------------------------------------------------------------------------------

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
        end = row.end
        if row.samples and request.beams is None:
            end = min(row.end, len(request.tokens) - 1)
        self.totals.computed_tokens += end - row.start
        request.receipt.take_work(row.start, end)
        request.computed = end
        if request.scored < end:  # computed again after a preemption, it may be far ahead
            request.scored = end if end < request.n_prompt else UNBOUNDED
        self.cache.commit(request)
        if request.pins:
            self._pin(request)
        if tokens and request.receipt.first_token_at is None:
            self._take_first_token(request, now)
        if finish is not None:
            self._close(request, finish, now)
        elif not tokens and result.scores is None:
            return None
        return Delta(request, tokens, result.scores, finish)

    def _take_first_token(self, request: Request, now: float) -> None:
        request.receipt.take_first_token(request.n_prompt, now)
        if request.choice == 0 and request.source is None:
            self.totals.prompt_tokens += request.n_prompt
            self.totals.prompt_read_tokens += request.receipt.read

    def _judge(self, batch: Batch, result: StepResult) -> None:
        """Count what the drafts were worth: a runner returns the right ones and one token more."""
        accepted = [0] * len(batch.rows)
        for i, (row, found) in enumerate(zip(batch.rows, result.rows, strict=True)):
            if row.drafts and found.error is None:
                accepted[i] = len(found.tokens) - 1
                self.totals.take_drafts(len(row.drafts), accepted[i])
                row.request.receipt.drafted += len(row.drafts)
                row.request.receipt.accepted += accepted[i]
        if self._drafter is not None and batch.rows:
            self._drafter.observe(batch.rows, accepted)

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
        """Grant the pins whose blocks are there. A pin reaches no further than the prompt."""
        table = request.table
        assert table is not None
        left = []
        for wish in request.pins:
            n_tokens = min(wish.n_tokens, request.n_prompt)
            if table.stored < n_tokens:
                left.append(wish)
            elif self.cache.pin(wish.name, request, n_tokens, wish.ttl_seconds):
                request.receipt.take_pin(n_tokens, wish.ttl_seconds)
        request.pins = tuple(left)

    # -- beams ----------------------------------------------------------------------------------

    def _take_beam(self, row: Row, result: RowResult, now: float) -> None:
        """A beam samples nothing: it reports candidates, and waits until its siblings have too."""
        request = row.request
        group = request.beams
        assert group is not None
        if result.error is not None:
            group.error = result.error
            return
        self._take(row, result, now)
        if row.samples:
            assert result.scores is not None, "the runner gave a beam no candidates"
            request.reported = result.scores
            if request.receipt.first_token_at is None:
                self._take_first_token(request, now)

    def _turn(self, group: BeamGroup, now: float) -> list[Delta]:
        """After a step with rows of `group`: go on to the next length if all have reported."""
        if group.error is not None:
            return [self._end_group(group, Finish.ERROR, group.error, now)]
        group.count_blocks()
        if not group.ready:
            return []
        ended, born = group.advance()
        for request in ended:
            self._end_beam(request, Finish.PRUNED, now)
        for request in born:
            request.receipt.queued_at = now
            self._roster.queue(request)
        if not group.over:
            return []
        answer = group.answer
        self.totals.generated_tokens += sum(len(each.tokens) for each in answer)
        return [self._end_group(group, answer[0].finish, answer, now)]

    def _end_group(self, group: BeamGroup, finish: Finish, scores: Any, now: float) -> Delta:
        """End what lives of a group. Its one delta is its leader's; `scores` is its answer."""
        for request in group.dissolve():
            self._end_beam(request, finish, now)
        leader = group.leader
        leader.finish = finish  # also if it was beaten long before
        leader.receipt.finished_at = now
        return Delta(leader, (), scores, finish)

    def _end_beam(self, request: Request, finish: Finish, now: float) -> None:
        self._roster.remove(request)
        self._close(request, finish, now)
        request.reported = None
        assert request.beams is not None
        leader = request.beams.leader
        if request is not leader:
            leader.receipt.absorb(request.receipt)

    def clear_cache(self) -> None:
        """Forget every cached prefix, and what a drafter keeps of requests that have ended."""
        self.cache.clear()
        if self._drafter is not None:
            self._drafter.clear()

    def check(self) -> None:
        """Assert the invariants at rest. For tests and debugging."""
        self._roster.check()
        self.cache.check(self.running)
