"""Each bug that is put in on purpose must be seen: a test that catches none proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from octavo.core.batch import Row
from octavo.core.cache import KVCache
from octavo.core.match import Match
from octavo.core.planner import Planner
from octavo.core.pool import BlockPool
from octavo.core.publisher import Publisher
from octavo.core.request import Request
from octavo.core.spec import Sliding
from tests.core.traffic import Traffic

Patch = Callable[[pytest.MonkeyPatch], None]


def no_tail_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "moves", lambda self: [])


def tail_shared_instead_of_copied(patch: pytest.MonkeyPatch) -> None:
    admit = KVCache.admit

    def shares(self: KVCache, request: Request, match: Match, n: int) -> Any:
        refusal = admit(self, request, match, n)
        if refusal is None and any(match.copies) and request.table is not None:
            at = match.n_tokens // self.block_tokens
            for blocks, (tail,) in zip(request.table.groups, match.copies, strict=True):
                self.pool.drop((blocks[at],))
                self.pool.share((tail,))
                blocks[at] = tail
            self._moves.clear()
        return refusal

    patch.setattr(KVCache, "admit", shares)


def write_from_ignored(patch: pytest.MonkeyPatch) -> None:
    row = Planner._row

    def rewrites(self: Planner, request: Request, n: int, now: float) -> Row:
        return row(self, request, n, now)._replace(write_from=0)

    patch.setattr(Planner, "_row", rewrites)


def window_one_too_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sliding, "first_live", lambda self, restart: max(0, restart - self.window + 2))
    # The runner keeps to the true window.
    monkey = Traffic.__post_init__

    def true_runner(self: Traffic) -> None:
        monkey(self)
        kinds = self.cache.kinds
        self.runner.first_live = [
            (lambda p, w=k.window: max(0, p - w + 1)) if isinstance(k, Sliding) else (lambda p: 0)
            for k in kinds
        ]

    patch.setattr(Traffic, "__post_init__", true_runner)


def revived_blocks_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlockPool, "idle", lambda self, ids: 0)


def head_dropped_first(patch: pytest.MonkeyPatch) -> None:
    drop = BlockPool.drop
    patch.setattr(BlockPool, "drop", lambda self, ids: drop(self, ids[::-1]))


def claims_outlive_their_producer(patch: pytest.MonkeyPatch) -> None:
    release = KVCache.release

    def leaks(self: KVCache, request: Request) -> None:
        before = dict(self.claims._producers)
        release(self, request)
        self.claims._producers = before

    patch.setattr(KVCache, "release", leaks)


def drafts_published(patch: pytest.MonkeyPatch) -> None:
    commit = KVCache.commit

    def early(self: KVCache, request: Request) -> None:
        if request.table is not None and len(request.table) * self.block_tokens > request.computed:
            request.computed = min(request.computed + 1, len(request.tokens))
        commit(self, request)

    patch.setattr(KVCache, "commit", early)


def duplicate_dropped_before_the_survivor_is_held(patch: pytest.MonkeyPatch) -> None:
    publish = BlockPool.publish

    def forgets(self: BlockPool, block: int, entry: Any) -> int:
        existing = self.index(entry.group).get(entry.key)
        if existing is not None and existing != block:
            self.drop((block,))
            return existing
        return publish(self, block, entry)

    patch.setattr(BlockPool, "publish", forgets)


def orphans_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_parent_is_own", lambda self, entry, blocks: True)


BUGS: list[Patch] = [
    no_tail_copy,
    tail_shared_instead_of_copied,
    write_from_ignored,
    window_one_too_short,
    revived_blocks_not_counted,
    head_dropped_first,
    claims_outlive_their_producer,
    drafts_published,
    duplicate_dropped_before_the_survivor_is_held,
    orphans_published,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_seeded_bug_is_caught(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError, TypeError, IndexError)):
        _run_many()


def _run_many() -> None:
    for seed in range(200):
        Traffic(seed, 40).run()
