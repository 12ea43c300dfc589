"""Random traffic through the real core, checked step by step against the reference."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from octavo.core.beams import BeamGroup, BeamRules, Hypothesis
from octavo.core.cache import KVCache
from octavo.core.draft_model import DraftModel
from octavo.core.events import Removed, Stored
from octavo.core.keys import Key, TokenChain
from octavo.core.policies import Policies
from octavo.core.request import UNBOUNDED, Finish, Limits, PinWish, Request
from octavo.core.scheduler import Scheduler
from octavo.core.spec import Full, Group, Kind, KVSpec, Sliding
from tests.core.ledger import LedgerRunner, draft_model, reference
from tests.core.plain_beams import plain_search

VOCAB = 6
STOP = frozenset([5])
ROOTS = (b"r" * 32, b"s" * 32)


def _ended(request: Request) -> bool:
    """A leader that its heirs beat is not the end of its search."""
    return request.finish is not None if request.beams is None else request.beams.over


def spec_of(kinds: tuple[Kind, ...], block_tokens: int) -> KVSpec:
    groups = tuple(Group(kind, (i,), 1, 1, "float32") for i, kind in enumerate(kinds))
    return KVSpec(groups, block_tokens)


@dataclass
class Traffic:
    """One seeded run. `uncached`: share of requests without a root; `beams`: of beam searches;
    `draft_blocks`: of a draft model's pool, 0 for none."""

    seed: int
    n_requests: int = 60
    policies: Policies = field(default_factory=Policies)
    uncached: float = 0.1
    sliding: bool = True
    beams: float = 0.0
    draft_blocks: int = 0

    def __post_init__(self) -> None:
        rnd = self.rnd = random.Random(self.seed)
        self.block = rnd.choice([1, 2, 4, 8])
        kinds = (Full(),)
        if self.sliding:
            window = rnd.choice([1, 3, 8, 13])
            kinds = rnd.choice([kinds, kinds, (Full(), Sliding(window)), (Sliding(5),)])
        total = rnd.choice([7, 8, 9, 12, 20, 40]) * len(kinds) * (8 // self.block)
        self.budget = rnd.choice([8, 16, 40])
        self.seqs = rnd.choice([1, 3, 8])
        self.events: list[object] = []
        self.cache = KVCache(
            spec_of(kinds, self.block),
            total,
            step_tokens=self.budget,
            policies=self.policies,
            sink=self.events.append,
        )
        self.drafter: DraftModel | None = None
        if self.draft_blocks:
            self.drafter = draft_model(
                spec_of(kinds, self.block),
                self.draft_blocks * len(kinds) * (8 // self.block),
                vocab=VOCAB,
                right=0.8,
                step_tokens=rnd.choice([4, 16, 64]),
            )
        self.scheduler = Scheduler(
            self.cache,
            max_num_batched_tokens=self.budget,
            max_num_seqs=self.seqs,
            policies=self.policies,
            drafter=self.drafter,
        )
        self.runner = LedgerRunner(self.cache, vocab=VOCAB)
        self.prefixes = [[rnd.randrange(3) for _ in range(rnd.randrange(1, 30))] for _ in range(4)]
        self.live: list[Request] = []
        self.finished: list[Request] = []
        self.made = self.refused = self.now = self.idle_steps = self.searches = 0
        self.answers: dict[Request, tuple[Hypothesis, ...]] = {}

    def run(self) -> Traffic:
        while self.made < self.n_requests or self.live:
            if self.made < self.n_requests and self.rnd.random() < 0.4:
                for _ in range(self.rnd.randrange(1, 4)):
                    self._arrive()
            self._disturb()
            self._step()
            self._settle()
            assert self.now < 200 * self.n_requests + 1000, "starvation"
        self._check_end()
        return self

    def _arrive(self) -> None:
        rnd = self.rnd
        tail = rnd.randrange(0, 9) if rnd.random() < 0.9 else rnd.randrange(0, 40)
        prompt = [*rnd.choice(self.prefixes), *(rnd.randrange(3) for _ in range(tail))]
        root = None if rnd.random() < self.uncached else rnd.choice(ROOTS)
        limits = Limits(rnd.randrange(1, 20), STOP if rnd.random() < 0.2 else frozenset())
        priority = rnd.choice([0, 0, 0, 1])
        if self.beams and rnd.random() < self.beams:
            self._arrive_with_beams(prompt, TokenChain(root, self.block), limits, priority)
            return
        leader: Request | None = None
        for choice in range(rnd.choice([1, 1, 1, 3])):
            request = Request(
                f"{self.made}",
                prompt,
                limits=limits,
                chain=TokenChain(root, self.block),
                priority=priority,
                choice=choice,
                source=leader,
                scored=0 if rnd.random() < 0.1 else UNBOUNDED,
                pins=self._pins(root, len(prompt)),
            )
            self.made += 1
            if self.scheduler.add(request, self.now) is not None:
                self.refused += 1
                continue
            leader = leader or request
            self.live.append(request)

    def _arrive_with_beams(
        self, prompt: list[int], chain: TokenChain, limits: Limits, priority: int
    ) -> None:
        rnd = self.rnd
        leader = Request(f"{self.made}", prompt, limits=limits, chain=chain, priority=priority)
        width = rnd.choice([1, 2, 3, 5, 8])
        BeamGroup(
            leader,
            BeamRules(
                width=width,
                n=rnd.randrange(1, width + 1),
                length_penalty=rnd.choice([1.0, 0.0, 2.0, -1.0]),
                early_stopping=rnd.choice([False, True, "never"]),
            ),
        )
        self.made += 1
        if self.scheduler.add(leader, self.now) is not None:
            self.refused += 1
            return
        self.live.append(leader)

    def _pins(self, root: Key | None, n_prompt: int) -> tuple[PinWish, ...]:
        rnd = self.rnd
        if root is None or n_prompt < self.block or rnd.random() >= 0.1:
            return ()
        n_tokens = n_prompt // self.block * self.block
        return (PinWish(f"pin {rnd.randrange(6)}", n_tokens, rnd.choice([5, 40, 4000])),)

    def _disturb(self) -> None:
        """Aborts, clears, and drafts that are right four times out of five."""
        rnd = self.rnd
        if rnd.random() < 0.03:
            self.cache.clear(rnd.choice([None, *ROOTS]))
        for request in self.live:
            if rnd.random() < 0.004:
                self.scheduler.end(request, Finish.ABORT, self.now)
            elif request.beams is not None:
                continue
            elif request.table is not None and request.behind == 1 and rnd.random() < 0.3:
                drafts = reference(request.chain.root, request.tokens, rnd.randrange(5), VOCAB)
                request.drafts = tuple(d if rnd.random() < 0.8 else (d + 1) % VOCAB for d in drafts)

    def _step(self) -> None:
        batch = self.scheduler.schedule(self.now)
        assert sum(row.end - row.start for row in batch.rows) <= self.budget
        assert len(self.scheduler.running) <= self.seqs
        for delta in self.scheduler.update(batch, self.runner.run(batch), self.now + 0.5):
            if delta.request.beams is not None:
                self.answers[delta.request] = delta.scores
        self.scheduler.check()
        if self.drafter is not None:
            self.drafter.check()
        self.now += 1
        stuck = not batch.rows and (self.scheduler.running or self.scheduler.waiting)
        self.idle_steps = self.idle_steps + 1 if stuck else 0
        assert self.idle_steps < 3, "livelock"

    def _settle(self) -> None:
        for request in [r for r in self.live if _ended(r)]:
            self.live.remove(request)
            self.finished.append(request)
            if request.finish is Finish.ABORT:
                continue
            prompt, answer = request.tokens[: request.n_prompt], request.tokens[request.n_prompt :]
            room = request.max_total - request.n_prompt
            stop = request.limits.stop_ids
            root = request.chain.root
            if request.beams is None:
                assert answer == reference(root, prompt, room, VOCAB, stop)
            else:
                self.searches += 1
                best = plain_search(
                    root, prompt, rules=request.beams.rules, room=room, stop=stop, vocab=VOCAB
                )
                assert list(self.answers.pop(request)) == best
            receipt = request.receipt
            assert receipt.read + receipt.written + receipt.unkept == request.n_prompt
            assert receipt.unkept >= 0

    def _check_end(self) -> None:
        self.cache.tick(1e9)
        pool = self.cache.pool
        assert not len(self.cache.claims)
        assert not len(self.cache.pins)
        assert pool.available == pool.total
        assert pool.shared == 0
        if self.drafter is not None:
            own = self.drafter.cache
            assert own.pool.available == own.pool.total
            assert not len(own.claims)
        index: set[tuple[Key, int]] = set()
        for event in self.events:
            if isinstance(event, Stored):
                fresh = {(key, event.group) for key in event.keys}
                assert not fresh & index
                assert len(event.tokens) == len(event.keys) * self.block
                index |= fresh
            elif isinstance(event, Removed):
                index.remove((event.key, event.group))
        snapshot = {(key, event.group) for event in self.cache.snapshot() for key in event.keys}
        assert index == snapshot
