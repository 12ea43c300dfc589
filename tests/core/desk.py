"""A desk for scheduler tests: cache, scheduler, ledger runner and a clock, stepped by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.core import (
    Batch,
    Delta,
    Finish,
    Full,
    Group,
    KVCache,
    KVSpec,
    Limits,
    PinWish,
    Policies,
    Request,
    Scheduler,
    TokenChain,
)
from octavo.core.batch import Drafter
from octavo.core.request import UNBOUNDED
from octavo.core.spec import Kind
from tests.core.ledger import LedgerRunner, reference

ROOT = b"r" * 32


class Desk:
    def __init__(
        self,
        blocks: int,
        *,
        block_tokens: int = 16,
        budget: int = 2048,
        seqs: int = 128,
        kinds: Sequence[Kind] = (Full(),),
        policies: Policies | None = None,
        vocab: int = 50,
        drafter: Drafter | None = None,
    ) -> None:
        groups = tuple(Group(kind, (i,), 1, 1, "float32") for i, kind in enumerate(kinds))
        self.events: list[Any] = []
        self.block_tokens = block_tokens
        self.cache = KVCache(
            KVSpec(groups, block_tokens),
            blocks,
            step_tokens=budget,
            policies=policies,
            sink=self.events.append,
        )
        self.scheduler = Scheduler(
            self.cache,
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            policies=policies,
            drafter=drafter,
        )
        self.runner = LedgerRunner(self.cache, vocab=vocab)
        self.now = 0.0
        self.batches: list[Batch] = []

    def request(
        self,
        name: str,
        tokens: Iterable[int],
        *,
        max_tokens: int = 4,
        cached: bool = True,
        root: bytes = ROOT,
        priority: int = 0,
        source: Request | None = None,
        choice: int = 0,
        scored: int = UNBOUNDED,
        pins: tuple[PinWish, ...] = (),
    ) -> Request:
        return Request(
            name,
            list(tokens),
            limits=Limits(max_tokens),
            chain=TokenChain(root if cached else None, self.block_tokens),
            priority=priority,
            source=source,
            choice=choice,
            scored=scored,
            pins=pins,
            owner=name,
        )

    def add(self, name: str, tokens: Iterable[int], **options: Any) -> Request:
        request = self.request(name, tokens, **options)
        refusal = self.scheduler.add(request, self.now)
        assert refusal is None, str(refusal)
        return request

    def step(self) -> list[Delta]:
        batch = self.scheduler.schedule(self.now)
        self.batches.append(batch)
        deltas = self.scheduler.update(batch, self.runner.run(batch), self.now + 0.5)
        self.scheduler.check()
        self.now += 1
        return deltas

    def rows(self) -> dict[str, tuple[int, int]]:
        """The last step's rows by request."""
        return {row.request.id: (row.start, row.end) for row in self.batches[-1].rows}

    def run(self, *, most_steps: int = 1000) -> None:
        for _ in range(most_steps):
            if not self.scheduler.busy:
                return
            self.step()
        raise AssertionError("still busy")

    def abort(self, request: Request) -> None:
        self.scheduler.end(request, Finish.ABORT, self.now)
        self.scheduler.check()

    def expected(self, request: Request) -> list[int]:
        """What the unscheduled reference answers."""
        n = request.max_total - request.n_prompt
        prompt = request.tokens[: request.n_prompt]
        return reference(request.chain.root, prompt, n, self.runner.vocab)

    def assert_right(self, *requests: Request) -> None:
        for request in requests:
            assert request.tokens[request.n_prompt :] == self.expected(request), request.id

    def assert_empty(self) -> None:
        """Nothing is held, claimed or shared any more."""
        assert self.cache.pool.available == self.cache.pool.total
        assert not len(self.cache.claims)
