"""A runner without tensors that proves every read: per slot, what a real kernel would leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from octavo.core.batch import Batch, Row, RowResult, StepResult
from octavo.core.cache import KVCache
from octavo.core.draft_model import DraftModel
from octavo.core.keys import Key
from octavo.core.policies import Policies
from octavo.core.request import Request
from octavo.core.spec import KVSpec
from octavo.core.table import NOTHING

Tag = int  # stands for K and V at one position: depends on every token up to it


def extend_tag(tag: Tag, token: int) -> Tag:
    return hash((tag, token))


def first_tag(root: Key | None) -> Tag:
    return 0 if root is None else int.from_bytes(root[:7], "little")


def next_token(tag: Tag, vocab: int) -> int:
    return hash((tag, -7)) % vocab


def candidates(tag: Tag, vocab: int) -> list[tuple[int, float]]:
    """All tokens with made-up log-probabilities, best first. Many are equal, and sums are exact."""
    scores = [(token, -(hash((tag, token, -9)) % 12 + 1) / 8) for token in range(vocab)]
    return sorted(scores, key=lambda each: (-each[1], each[0]))


def reference(
    root: Key | None, prompt: Sequence[int], n: int, vocab: int, stop: frozenset[int] = frozenset()
) -> list[int]:
    """What an unscheduled, uncached model would answer."""
    tag = first_tag(root)
    for token in prompt:
        tag = extend_tag(tag, token)
    answer: list[int] = []
    while len(answer) < n and not (answer and answer[-1] in stop):
        answer.append(next_token(tag, vocab))
        tag = extend_tag(tag, answer[-1])
    return answer


class LedgerRunner:
    """Moves, then all writes, then all reads, each checked."""

    def __init__(self, cache: KVCache, *, vocab: int = 50) -> None:
        self.cache = cache
        self.vocab = vocab
        self.computed_tokens = 0
        self.rows_log: list[list[tuple[str, int, int, tuple[int, ...]]]] = []
        self.first_live = [kind.first_live for kind in cache.kinds]
        self._slots: dict[int, list[tuple[int, Tag] | None]] = {}
        self._tags: dict[Request, list[Tag]] = {}

    def run(self, batch: Batch) -> StepResult:
        block = self.cache.block_tokens
        self.rows_log.append(
            [(r.request.id, r.start, r.end, tuple(r.request.table.groups[0])) for r in batch.rows]
        )
        for move in batch.moves:
            kept = list(self._slots[move.src.slot][: move.n_tokens])
            self._slots[move.dst.slot] = kept + [None] * (block - move.n_tokens)
        seats = [row.seat for row in batch.rows]
        assert len(set(seats)) == len(seats), "two rows sit on one seat"
        tags = [self._row_tags(row) for row in batch.rows]
        self._write(batch, tags)
        for row, row_tags in zip(batch.rows, tags, strict=True):
            self._read(row, row_tags)
        return StepResult([self._answer(row, t) for row, t in zip(batch.rows, tags, strict=True)])

    def _row_tags(self, row: Row) -> list[Tag]:
        """Tags after 0..end tokens of the row's sequence, drafts included."""
        request = row.request
        confirmed = row.end - len(row.drafts)
        tags = self._confirmed_tags(request, confirmed)[: confirmed + 1]
        for draft in row.drafts:
            tags.append(extend_tag(tags[-1], draft))
        self.computed_tokens += row.end - row.start
        assert 0 <= row.start < row.end == len(tags) - 1
        return tags

    def _confirmed_tags(self, request: Request, upto: int) -> list[Tag]:
        tags = self._tags.setdefault(request, [first_tag(request.chain.root)])
        for token in request.tokens[len(tags) - 1 : upto]:
            tags.append(extend_tag(tags[-1], token))
        return tags

    def _write(self, batch: Batch, tags: list[list[Tag]]) -> None:
        block = self.cache.block_tokens
        written: set[tuple[int, int]] = set()
        for row, row_tags in zip(batch.rows, tags, strict=True):
            for group, table in enumerate(row.request.table.groups):
                for p in range(max(row.start, row.write_from), row.end):
                    place = (table[p // block], p % block)
                    assert place not in written, "two rows write one slot"
                    written.add(place)
                    assert place[0] != NOTHING, "a write into nothing"
                    assert not self.cache.pool.is_published(place[0]), "a keyed block was written"
                    slots = self._slots.setdefault(place[0], [None] * block)
                    slots[place[1]] = (group, row_tags[p + 1])

    def _read(self, row: Row, tags: list[Tag]) -> None:
        block = self.cache.block_tokens
        for group, first_live in enumerate(self.first_live):
            table = row.request.table.groups[group]
            for p in range(first_live(row.start), row.end):
                assert table[p // block] != NOTHING, "a read from nothing"
                found = self._slots[table[p // block]][p % block]
                assert found == (group, tags[p + 1]), f"{row.request.id} read a wrong slot at {p}"

    def _answer(self, row: Row, tags: list[Tag]) -> RowResult:
        """Accepts drafts up to the first wrong one, as greedy speculation does."""
        if not row.samples:
            return RowResult()
        if row.request.beams is not None:
            count = row.request.beams.n_candidates
            return RowResult(scores=candidates(tags[row.end], self.vocab)[:count])
        new: list[int] = []
        for i in range(row.end - len(row.drafts), row.end + 1):
            new.append(next_token(tags[i], self.vocab))
            if i == row.end or row.drafts[i - row.end] != new[-1]:
                break
        return RowResult(tuple(new))


class GuessRunner(LedgerRunner):
    """A draft model: as the ledger's, but its tokens are `right` only that often. Its requests take
    guesses back."""

    def __init__(self, cache: KVCache, *, vocab: int, right: float) -> None:
        super().__init__(cache, vocab=vocab)
        self._right = right
        self._rnd = random.Random(1)

    def run(self, batch: Batch) -> StepResult:
        self._tags.clear()
        rows = [
            one if self._rnd.random() < self._right else self._wrong(one)
            for one in super().run(batch).rows
        ]
        return StepResult(rows)

    def _wrong(self, one: RowResult) -> RowResult:
        return RowResult(tuple((token + 1) % self.vocab for token in one.tokens))


def draft_model(
    spec: KVSpec,
    blocks: int,
    *,
    vocab: int = 50,
    right: float = 1.0,
    clock: Callable[[], float] = lambda: 0.0,
    most_tokens: int = 4,
    most_running: int = 8,
    step_tokens: int = 2048,
    n_positions: int = 1 << 20,
) -> DraftModel:
    """A drafter over a pool of its own. With the clock standing still it always pays."""
    policies = Policies(share_in_flight=False)
    cache = KVCache(spec, blocks, step_tokens=step_tokens, policies=policies)
    return DraftModel(
        GuessRunner(cache, vocab=vocab, right=right),
        cache,
        clock=clock,
        most_tokens=most_tokens,
        most_running=most_running,
        step_tokens=step_tokens,
        n_positions=n_positions,
    )
