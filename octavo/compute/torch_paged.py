"""Paged attention in plain torch: specification, fallback and test oracle for every other backend.

Owns the arithmetic over tiles; `torch_plan` owns where the tiles are. Scores, softmax and sums are
float32 whatever the pool holds. The query heads that share a KV head are folded into rows, so each
K and V is read once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from octavo.compute.attention import AttentionRows, AttentionShape, Window
from octavo.compute.kv_pool import KEY, VALUE, KVPool
from octavo.compute.torch_plan import (
    Chunk,
    GroupPlan,
    Singles,
    Span,
    Tile,
    Walk,
    plan_walks,
    plan_writes,
)

TorchPlan = list[GroupPlan]  # one step, by group

# Below every score, yet finite: a query that reads nothing of a tile must leave its sums alone,
# and (-inf) - (-inf) would not.
_LOWEST = torch.finfo(torch.float32).min / 2


class TorchPaged:
    """The reference backend, for one pool."""

    def __init__(self, pool: KVPool, shape: AttentionShape) -> None:
        assert not self.refusals(shape)
        assert (shape.kv_heads, shape.head_dim) == (pool.kv_heads, pool.head_dim)
        assert shape.block_tokens == pool.block_tokens
        self._pool = pool
        self._shape = shape
        self._scale = shape.head_dim**-0.5 if shape.scale is None else shape.scale
        self._by_window: dict[Window, list[int]] = {}
        for number, window in enumerate(shape.windows()):
            self._by_window.setdefault(window, []).append(number)
        where = {
            layer: (number, index)
            for number, group in enumerate(shape.groups)
            for index, layer in enumerate(group.layers)
        }
        # Per layer of the model: its group, and views of its place in a block.
        self._group = [where[layer][0] for layer in range(len(where))]
        places = [where[layer][1] for layer in range(len(where))]
        self._keys = [pool.head_rows(place, KEY) for place in places]
        self._values = [pool.head_rows(place, VALUE) for place in places]
        self._key_slots = [pool.slot_rows(place, KEY) for place in places]
        self._value_slots = [pool.slot_rows(place, VALUE) for place in places]

    @staticmethod
    def refusals(shape: AttentionShape) -> list[str]:
        """Why this backend cannot serve `shape`; empty if it can."""
        reasons = []
        if shape.kv_heads < 1 or shape.n_heads % shape.kv_heads:
            reasons.append(
                f"{shape.n_heads} query heads are not a multiple of {shape.kv_heads} KV heads"
            )
        if shape.dtype not in ("float32", "bfloat16", "float16"):
            reasons.append(f"K and V in {shape.dtype} are not supported")
        reasons += [
            f"window {window} is not positive"
            for window in shape.windows()
            if window is not None and window < 1
        ]
        return reasons

    def plan(self, groups: Sequence[AttentionRows]) -> TorchPlan:
        walks: dict[int, Walk] = {}
        for window, members in self._by_window.items():
            planned = plan_walks([groups[member] for member in members], self._pool, window)
            walks.update(zip(members, planned, strict=True))
        return [
            GroupPlan(plan_writes(rows, self._pool), walks[number])
            for number, rows in enumerate(groups)
        ]

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, plan: TorchPlan) -> None:
        writes = plan[self._group[layer]].writes
        kept, rows = writes.kept, writes.rows
        dtype, head_dim = self._pool.tensor.dtype, self._shape.head_dim
        for source, slots in ((k, self._key_slots[layer]), (v, self._value_slots[layer])):
            stored = source if kept is None else source.index_select(0, kept)
            slots.index_copy_(0, rows, stored.to(dtype).reshape(-1, head_dim))

    def attend(self, layer: int, q: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        walk = plan[self._group[layer]].walk
        singles = walk.singles
        if singles is not None and singles.tokens is None:
            return self._attend_singles(layer, q, singles).to(q.dtype)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if singles is not None and singles.tokens is not None:
            picked = self._attend_singles(layer, q.index_select(0, singles.tokens), singles)
            out.index_copy_(0, singles.tokens, picked.to(q.dtype))
        for chunk in walk.chunks:
            out[chunk.start : chunk.stop] = self._attend_chunk(layer, q, chunk)
        return out

    def _cap(self, scores: torch.Tensor) -> torch.Tensor:
        """softcap · tanh(scores / softcap), in place; nothing where the model has no cap."""
        cap = self._shape.softcap
        return scores if cap is None else scores.div_(cap).tanh_().mul_(cap)

    def _tile(self, rows: torch.Tensor, index: torch.Tensor, n_heads: int) -> torch.Tensor:
        """Gather pool head rows -> float32 [n_heads, positions, head_dim]."""
        gathered = rows.index_select(0, index.view(-1))
        return gathered.view(n_heads, -1, self._shape.head_dim).float()

    def _attend_singles(self, layer: int, q: torch.Tensor, plan: Singles) -> torch.Tensor:
        """q [rows, heads, head_dim] -> float32, same shape: a partial sum per item, then merged."""
        shape = self._shape
        n_items = plan.row.shape[0]
        q = q.float() * self._scale
        if plan.merge:
            q = q.index_select(0, plan.row)
        q = q.reshape(n_items, shape.n_heads, shape.head_dim)
        parts = [
            self._partial(layer, q[begin : begin + plan.items_per_pass], plan, begin)
            for begin in range(0, n_items, plan.items_per_pass)
        ]
        highest, total, summed = (
            parts[0]
            if len(parts) == 1
            else tuple(torch.cat(each) for each in zip(*parts, strict=True))
        )
        if plan.merge:
            total, summed = _merge(highest, total, summed=summed, plan=plan)
        return summed.div_(total)

    def _partial(
        self, layer: int, q: torch.Tensor, plan: Singles, begin: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Per item: highest score, sum of exponentials [n, heads, 1], and V summed by weight."""
        shape = self._shape
        n = q.shape[0]
        index = plan.gather[begin : begin + n]
        folded = q.view(n * shape.kv_heads, -1, shape.head_dim)
        keys = self._tile(self._keys[layer], index, n * shape.kv_heads)
        scores = torch.bmm(folded, keys.transpose(1, 2)).view(n, shape.n_heads, -1)
        self._cap(scores).add_(plan.mask[begin : begin + n])
        highest = scores.amax(-1, keepdim=True)
        scores.sub_(highest).exp_()
        values = self._tile(self._values[layer], index, n * shape.kv_heads)
        summed = torch.bmm(scores.view(n * shape.kv_heads, -1, scores.shape[-1]), values)
        return highest, scores.sum(-1, keepdim=True), summed.view(n, shape.n_heads, -1)

    def _attend_chunk(self, layer: int, q: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        """One row's queries -> float32 [tokens, heads, head_dim], tile by tile, online softmax."""
        shape = self._shape
        n, kv_heads = chunk.stop - chunk.start, shape.kv_heads
        queries = q[chunk.start : chunk.stop].view(n, kv_heads, -1, shape.head_dim)
        folded = queries.permute(1, 0, 2, 3).reshape(kv_heads, -1, shape.head_dim).float()
        sums = _Sums(folded * self._scale, n, cap=self._cap)
        for tile in chunk.tiles:
            keys = self._tile(self._keys[layer], tile.gather, kv_heads)
            values = self._tile(self._values[layer], tile.gather, kv_heads)
            sums.add(tile, keys, values=values)
        out = sums.result().view(kv_heads, n, -1, shape.head_dim)
        return out.permute(1, 0, 2, 3).reshape(n, shape.n_heads, shape.head_dim)


class _Sums:
    """Running maximum, sum and weighted V of queries [kv_heads, tokens · group, head_dim].

    `cap` is applied to the scores before the mask.
    """

    def __init__(
        self, q: torch.Tensor, n_tokens: int, *, cap: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._q = q
        self._cap = cap
        self._per_token = q.shape[1] // n_tokens
        self._highest = q.new_full((*q.shape[:2], 1), _LOWEST)
        self._total = q.new_zeros((*q.shape[:2], 1))
        self._summed = torch.zeros_like(q)

    def add(self, tile: Tile, keys: torch.Tensor, *, values: torch.Tensor) -> None:
        """Take in one KV tile [kv_heads, positions, head_dim]."""
        for span in tile.spans:
            self._add_span(span, keys, values)

    def _add_span(self, span: Span, keys: torch.Tensor, values: torch.Tensor) -> None:
        part = slice(span.start * self._per_token, span.stop * self._per_token)
        scores = self._cap(torch.bmm(self._q[:, part], keys.transpose(1, 2)))
        if span.mask is not None:
            by_token = scores.view(scores.shape[0], -1, self._per_token, scores.shape[-1])
            by_token.add_(span.mask)
        before = self._highest[:, part]
        highest = torch.maximum(before, scores.amax(-1, keepdim=True))
        shrink = (before - highest).exp_()
        scores.sub_(highest).exp_()
        self._highest[:, part] = highest
        self._total[:, part].mul_(shrink).add_(scores.sum(-1, keepdim=True))
        self._summed[:, part].mul_(shrink).add_(torch.bmm(scores, values))

    def result(self) -> torch.Tensor:
        return self._summed.div_(self._total)


def _merge(
    highest: torch.Tensor, total: torch.Tensor, *, summed: torch.Tensor, plan: Singles
) -> tuple[torch.Tensor, torch.Tensor]:
    """Items -> rows: rescale each item to its row's highest score, then add in tile order."""
    rows = (plan.n_rows, *highest.shape[1:])
    index = plan.row.view(-1, 1, 1).expand_as(highest)
    top = highest.new_full(rows, _LOWEST).scatter_reduce_(0, index, highest, "amax")
    shrink = (highest - top.index_select(0, plan.row)).exp_()
    merged = summed.new_zeros((plan.n_rows, *summed.shape[1:]))
    merged.index_add_(0, plan.row, summed * shrink)
    return total.new_zeros(rows).index_add_(0, plan.row, total * shrink), merged
