"""Attention as problems: one new token for each request over K and V in the paged pool."""

from __future__ import annotations

import ctypes

import torch

from octavo.bench.ops.problem import Problem, Sizes
from octavo.compute.native import structs
from octavo.compute.native.buffers import floats
from octavo.compute.native.library import Program, Workers, load
from octavo.compute.native.pool import NativeKVPool
from octavo.compute.native.program import PARTIALS, Limits, Plan
from octavo.compute.rope import RopeTable
from octavo.core.model_config import RopeConfig
from octavo.core.spec import Full, Group

BLOCK_TOKENS = 16
THETA = 1e4
KEY, VALUE = 0, 1


class Requests:
    """`n_rows` requests of `context` tokens each, with blocks and queries of their own."""

    def __init__(self, kv_dtype: str, sizes: Sizes) -> None:
        self.sizes = sizes
        self.blocks_each = -(-sizes.context // BLOCK_TOKENS)
        group = Group(Full(), (0,), sizes.kv_heads, sizes.head_dim, kv_dtype)
        self.pool = NativeKVPool(
            load(), group, sizes.n_rows * self.blocks_each, block_tokens=BLOCK_TOKENS
        )
        self.tables = torch.arange(1, self.pool.num_blocks + 1, dtype=torch.int32)
        self.slots = self.slots_at(range(sizes.context))
        self.heads = sizes.n_heads + 2 * sizes.kv_heads
        self.kv_bytes = 2 * sizes.n_rows * sizes.context * sizes.kv_heads * group.head_token_bytes

    def slots_at(self, positions: range) -> torch.Tensor:
        """Where those tokens of each request lie, request after request."""
        begin = torch.arange(self.sizes.n_rows)[:, None] * self.blocks_each + 1
        return (begin * BLOCK_TOKENS + torch.tensor(positions)).reshape(-1)

    def rows(self, slots: torch.Tensor) -> structs.GroupRows:
        return structs.GroupRows(
            block_tables=self.tables.data_ptr(),
            slots=slots.data_ptr(),
            table_stride=self.blocks_each,
        )

    def random_qkv(self, n_tokens: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(self.sizes.seed)
        return torch.randn(n_tokens, self.heads * self.sizes.head_dim, generator=source)

    def fill(self) -> None:
        """Random K and V for all tokens."""
        n_tokens, group = len(self.slots), self.rows(self.slots)
        positions, qkv = torch.zeros(n_tokens, dtype=torch.int64), self.random_qkv(n_tokens)
        q = floats(n_tokens, self.sizes.n_heads * self.sizes.head_dim)
        rope = RopeTable(RopeConfig(dim=self.sizes.head_dim, theta=THETA), 1)
        write = self.rope_write(qkv, rope, q=q)
        step = structs.Step(
            n_tokens=n_tokens, positions=positions.data_ptr(), groups=ctypes.pointer(group)
        )
        workers = Workers(load(), 1)
        workers.run(Program(workers.library, [("rope_write", write)]), step)
        workers.close()

    def rope_write(
        self, qkv: torch.Tensor, rope: RopeTable, *, q: torch.Tensor
    ) -> structs.RopeWrite:
        return structs.RopeWrite(
            pool=self.pool.struct,
            qkv=qkv.data_ptr(),
            cos=rope.cos.data_ptr(),
            sin=rope.sin.data_ptr(),
            q=q.data_ptr(),
            n_heads=self.sizes.n_heads,
            rope_dim=self.sizes.head_dim,
            scale=self.sizes.head_dim**-0.5,
        )

    def stored(self, row: int, part: int) -> torch.Tensor:
        """K or V of one request as they come back, float64 [kv_heads, context, head_dim]."""
        first = row * self.blocks_each + 1
        blocks = range(first, first + self.blocks_each)
        whole = torch.cat([self.pool.read(0, part, block) for block in blocks], dim=1)
        return whole[:, : self.sizes.context].double()


def decode(kv_dtype: str, sizes: Sizes) -> Problem:
    """A token each over `context`. Deviation: relative to the value's size plus 1."""
    requests = Requests(kv_dtype, sizes)
    requests.fill()
    n_rows, heads, dim = sizes.n_rows, sizes.n_heads, sizes.head_dim
    q = torch.randn(n_rows, heads, dim, generator=torch.Generator().manual_seed(sizes.seed + 1))
    out = floats(n_rows, heads, dim)
    stats, sums = floats(PARTIALS, heads, 2), floats(PARTIALS, heads, dim)
    plan = Plan(Limits(tokens=n_rows, rows=n_rows))
    planning = structs.AttentionPlanning(
        plan=ctypes.pointer(plan.struct),
        block_tokens=BLOCK_TOKENS,
        heads_per_kv=heads // sizes.kv_heads,
        share=1,
    )
    attention = structs.Attention(
        pool=requests.pool.struct,
        plan=ctypes.pointer(plan.struct),
        q=q.data_ptr(),
        out=out.data_ptr(),
        stats=stats.data_ptr(),
        sums=sums.data_ptr(),
        n_heads=heads,
    )
    starts = torch.arange(n_rows + 1, dtype=torch.int32)
    lengths = torch.full((n_rows,), sizes.context, dtype=torch.int32)
    group = requests.rows(requests.slots)
    return Problem(
        prepare=[("attention_plan", planning)],
        ops=[("attention", attention), ("attention_merge", attention)],
        step=structs.Step(
            n_tokens=n_rows,
            n_rows=n_rows,
            row_starts=starts.data_ptr(),
            kv_tokens=lengths.data_ptr(),
            groups=ctypes.pointer(group),
        ),
        n_bytes=requests.kv_bytes + 8 * q.numel(),
        flops=4 * n_rows * heads * dim * sizes.context,
        deviation=lambda: _deviation(requests, q, out),
        keep=(requests, q, out, stats, sums, plan, starts, lengths, group),
    )


def _deviation(requests: Requests, q: torch.Tensor, out: torch.Tensor) -> float:
    worst = []
    each = requests.sizes.n_heads // requests.sizes.kv_heads
    for row, query in enumerate(q.double()):
        k, v = (requests.stored(row, part).repeat_interleave(each, 0) for part in (KEY, VALUE))
        weights = torch.einsum("hd,htd->ht", query, k).softmax(-1)
        expected = torch.einsum("ht,htd->hd", weights, v)
        worst.append(((out[row] - expected).abs() / (expected.abs() + 1)).max())
    return float(torch.stack(worst).max())


def rope_write(kv_dtype: str, sizes: Sizes) -> Problem:
    """Rotated queries out, K and V into the pool, for one new token of each request.

    Deviation: of the queries, relative to the value's size plus 1.
    """
    requests = Requests(kv_dtype, sizes)
    n_rows, heads, dim = sizes.n_rows, sizes.n_heads, sizes.head_dim
    slots = requests.slots_at(range(sizes.context - 1, sizes.context))
    positions = torch.full((n_rows,), sizes.context - 1, dtype=torch.int64)
    qkv, q = requests.random_qkv(n_rows), floats(n_rows, heads * dim)
    rope = RopeTable(RopeConfig(dim=dim, theta=THETA), sizes.context)
    group = requests.rows(slots)

    def deviation() -> float:
        queries = qkv.view(n_rows, -1, dim)[:, :heads]
        expected = rope.at(positions).apply(queries).double() * dim**-0.5
        error = (q.view(n_rows, heads, dim) - expected).abs()
        return float((error / (expected.abs() + 1)).max())

    return Problem(
        prepare=[],
        ops=[("rope_write", requests.rope_write(qkv, rope, q=q))],
        step=structs.Step(
            n_tokens=n_rows, positions=positions.data_ptr(), groups=ctypes.pointer(group)
        ),
        n_bytes=4 * (qkv.numel() + q.numel()) + requests.kv_bytes // sizes.context,
        flops=6 * n_rows * (heads + sizes.kv_heads) * dim // 2,
        deviation=deviation,
        keep=(requests, slots, positions, qkv, q, rope, group),
    )
