"""The scheduler as hypothesis drives it: any order of arrivals, ends, clears, drafts and steps."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.core import Finish, PinWish, Policies, Request, Sliding
from octavo.core.policies import MAX_LENGTH, PAGED, POWER_OF_TWO
from octavo.core.request import UNBOUNDED
from octavo.core.spec import Full
from tests.core.desk import ROOT, Desk
from tests.core.ledger import reference

KINDS = [(Full(),), (Full(), Sliding(5)), (Sliding(3),)]
VOCAB = 4
# Prompts grow from few stems, so that they share prefixes of every length.
STEMS = st.sampled_from([[0, 1, 2, 3] * 8, [0, 1, 2, 3] * 3 + [2] * 12, [3, 3, 1] * 7])


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        blocks=st.integers(6, 60),
        block_tokens=st.sampled_from([1, 2, 4]),
        budget=st.integers(4, 40),
        kinds=st.sampled_from(KINDS),
        allocator=st.sampled_from([PAGED, PAGED, MAX_LENGTH, POWER_OF_TWO]),
        splits=st.booleans(),
        continuous=st.booleans(),
        share_in_flight=st.booleans(),
    )
    def start(self, blocks: int, block_tokens: int, budget: int, kinds, allocator, **flags) -> None:
        self.desk = Desk(
            blocks * len(kinds),
            block_tokens=block_tokens,
            budget=budget,
            seqs=4,
            kinds=kinds,
            policies=Policies(allocator=allocator, **flags),
            vocab=VOCAB,
        )
        self.requests: list[Request] = []
        self.idle_steps = 0

    @rule(
        stem=STEMS,
        cut=st.integers(1, 32),
        tail=st.lists(st.integers(0, 3), max_size=4),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 2),
        choices=st.integers(1, 3),
        cached=st.booleans(),
        scored=st.sampled_from([UNBOUNDED, UNBOUNDED, 0]),
        pinned=st.booleans(),
    )
    def arrive(
        self,
        stem: list[int],
        cut: int,
        tail: list[int],
        choices: int,
        pinned: bool,
        **options: object,
    ) -> None:
        prompt = [*stem[:cut], *tail]
        wish = PinWish(f"pin {cut % 3}", len(prompt), 7.0)
        leader = None
        for choice in range(choices):
            request = self.desk.request(
                f"{len(self.requests)}",
                prompt,
                source=leader,
                choice=choice,
                pins=(wish,) if pinned and options["cached"] else (),
                **options,
            )
            if self.desk.scheduler.add(request, self.desk.now) is None:
                self.requests.append(request)
                leader = leader or request

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.desk.abort(data.draw(st.sampled_from(self.requests)))

    @rule(root=st.sampled_from([None, ROOT]))
    def clear(self, root: bytes | None) -> None:
        self.desk.cache.clear(root)

    @precondition(lambda self: any(r.table and r.behind == 1 for r in self.requests))
    @rule(data=st.data(), n=st.integers(1, 4), wrong=st.integers(0, 5))
    def guess(self, data: st.DataObject, n: int, wrong: int) -> None:
        """Drafts, the one at `wrong` being so."""
        able = [r for r in self.requests if r.table and r.behind == 1]
        request = data.draw(st.sampled_from(able))
        right = reference(request.chain.root, request.tokens, n, VOCAB)
        request.drafts = tuple((t + (i == wrong)) % VOCAB for i, t in enumerate(right))

    @rule()
    def step(self) -> None:
        scheduler = self.desk.scheduler
        self.desk.step()
        stuck = not self.desk.batches[-1].rows and scheduler.busy
        self.idle_steps = self.idle_steps + 1 if stuck else 0
        assert self.idle_steps < 3, "livelock"

    @rule(data=st.data(), ends_one=st.booleans())
    def lose_a_step(self, data: st.DataObject, ends_one: bool) -> None:
        """Planned, and never run: the next step must make up for it, also for who ended since."""
        self.desk.scheduler.schedule(self.desk.now)
        if ends_one and self.requests:
            request = data.draw(st.sampled_from(self.requests))
            self.desk.scheduler.end(request, Finish.ABORT, self.desk.now)
        self.step()

    @invariant()
    def at_rest(self) -> None:
        self.desk.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.desk.run(most_steps=5000)
        for request in self.requests:
            if request.finish is Finish.ABORT:
                continue
            self.desk.assert_right(request)
            receipt = request.receipt
            assert receipt.read + receipt.written + receipt.unkept == request.n_prompt
        self.desk.cache.tick(1e9)
        self.desk.assert_empty()


SchedulerMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None
)
TestScheduler = SchedulerMachine.TestCase
