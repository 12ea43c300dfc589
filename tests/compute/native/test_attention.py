"""The kernels of paged attention: against float64, and bit against bit where they promise it."""

from __future__ import annotations

import ctypes
import dataclasses
from ctypes import c_void_p
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.compute.native import structs
from octavo.compute.native.library import ISAS, NotBuilt, load, usable_isas
from octavo.compute.native.structs import GroupRows, Op, Step
from octavo.compute.rope import RopeTable
from octavo.core.model_config import RopeConfig

F32, BF16, F16, INT8, FP8 = range(5)
DTYPES = (F32, BF16, F16, INT8, FP8)
CHUNK = 128
KEY, VALUE = 0, 1


@pytest.fixture(scope="session")
def libraries() -> dict[str, ctypes.CDLL]:
    """Every build that this machine can run, by instruction set."""
    try:
        return {isa: load(isa).handle for isa in usable_isas()}
    except NotBuilt as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Shape:
    n_heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    dtype: int = F16
    block_tokens: int = 16
    window: int = 0
    softcap: float = 0.0
    layers: int = 2
    layer: int = 1

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass
class Sequence:
    """One row: it adds `n` tokens up to `length`; `table` in logical order, 0: freed."""

    length: int
    n: int
    table: list[int]


@dataclass
class Rig:
    """One pool with its numbers, and ways to run ops over it."""

    library: ctypes.CDLL
    shape: Shape
    num_blocks: int
    memory: np.ndarray = field(init=False)
    pool: structs.KVPool = field(init=False)

    def __post_init__(self) -> None:
        shape = self.shape
        slab = self.library.octavo_kv_slab_bytes(shape.dtype, shape.head_dim, shape.block_tokens)
        part = slab * shape.kv_heads
        block = 2 * part * shape.layers
        self.memory = np.zeros((self.num_blocks + 1, block), dtype=np.uint8)
        self.pool = structs.KVPool(
            memory=self.memory.ctypes.data,
            block_bytes=block,
            layer_bytes=2 * part,
            part_bytes=part,
            slab_bytes=slab,
            block_tokens=shape.block_tokens,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=shape.dtype,
        )

    def run(self, ops: list[tuple[str, ctypes.Structure]], step: Step, threads: int = 1) -> None:
        calls = (Op * len(ops))()
        for call, (name, arguments) in zip(calls, ops, strict=True):
            call.run = ctypes.cast(getattr(self.library, f"op_{name}"), c_void_p).value
            call.arguments = ctypes.addressof(arguments)
        pool = self.library.octavo_pool_create(threads)
        self.library.octavo_run(pool, calls, len(ops), ctypes.byref(step))
        self.library.octavo_pool_destroy(pool)

    def read(self, part: int, block: int) -> torch.Tensor:
        """[kv_heads, block_tokens, head_dim] of the layer under test."""
        shape = self.shape
        out = np.empty((shape.kv_heads, shape.block_tokens, shape.head_dim), dtype=np.float32)
        self.library.octavo_kv_read(
            ctypes.byref(self.pool), shape.layer, part, block, out.ctypes.data
        )
        return torch.from_numpy(out)

    def write(
        self,
        qkv: torch.Tensor,
        positions: list[int],
        slots: list[int],
        *,
        rope_dim: int | None = None,
        norms: tuple[torch.Tensor, torch.Tensor] | None = None,
        table: RopeTable | None = None,
        threads: int = 1,
    ) -> torch.Tensor:
        """`op_rope_write`; q [tokens, n_heads, head_dim]."""
        shape = self.shape
        dim = rope_dim or shape.head_dim
        table = table or RopeTable(RopeConfig(dim=dim, theta=1e4), max(positions) + 1)
        angles = table.at(torch.arange(table.n_positions))
        q = torch.full((len(qkv), shape.n_heads, shape.head_dim), torch.nan)
        rows = _Held(positions=positions, slots=slots)
        arguments = structs.RopeWrite(
            pool=self.pool,
            qkv=qkv.data_ptr(),
            q_norm=norms[0].data_ptr() if norms else None,
            k_norm=norms[1].data_ptr() if norms else None,
            cos=angles.cos.data_ptr(),
            sin=angles.sin.data_ptr(),
            q=q.data_ptr(),
            n_heads=shape.n_heads,
            rope_dim=dim,
            layer=shape.layer,
            eps=1e-6,
            scale=shape.scale,
        )
        self.run([("rope_write", arguments)], rows.step, threads)
        return q

    def attend(
        self,
        q: torch.Tensor,
        sequences: list[Sequence],
        *,
        threads: int = 1,
        share: bool = True,
        capacity: int = 200,
    ) -> torch.Tensor:
        """q and the result are [tokens, n_heads, head_dim]; rows are `sequences` in order."""
        shape = self.shape
        rows = _Held(sequences=sequences)
        out = torch.full(q.shape, torch.nan)
        plan, kept = _plan(capacity, len(q), len(sequences))
        stats = torch.full((capacity, shape.n_heads, 2), torch.nan)
        sums = torch.full((capacity, shape.n_heads, shape.head_dim), torch.nan)
        make = structs.AttentionPlanning(
            plan=ctypes.pointer(plan),
            block_tokens=shape.block_tokens,
            window=shape.window,
            heads_per_kv=shape.n_heads // shape.kv_heads,
            share=int(share),
        )
        attention = structs.Attention(
            pool=self.pool,
            plan=ctypes.pointer(plan),
            q=q.data_ptr(),
            out=out.data_ptr(),
            stats=stats.data_ptr(),
            sums=sums.data_ptr(),
            n_heads=shape.n_heads,
            layer=shape.layer,
            window=shape.window,
            softcap=shape.softcap,
        )
        ops = [("attention_plan", make), ("attention", attention), ("attention_merge", attention)]
        self.run(ops, rows.step, threads)
        self.items = kept[0][: 4 * plan.n_items].reshape(-1, 4).copy()
        return out


class _Held:
    """A Step and what it points to."""

    def __init__(
        self,
        sequences: list[Sequence] | None = None,
        positions: list[int] | None = None,
        slots: list[int] | None = None,
    ) -> None:
        rows = sequences or []
        longest = max((len(row.table) for row in rows), default=1)
        self.tables = np.zeros((max(len(rows), 1), longest), dtype=np.int32)
        for into, row in zip(self.tables, rows, strict=False):
            into[: len(row.table)] = row.table
        self.starts = np.cumsum([0, *(row.n for row in rows)]).astype(np.int32)
        self.kv = np.array([row.length for row in rows], dtype=np.int32)
        self.positions = np.array(positions or [0], dtype=np.int64)
        self.slots = np.array(slots or [0], dtype=np.int64)
        self.group = GroupRows(self.tables.ctypes.data, self.slots.ctypes.data, longest)
        self.step = Step(
            n_tokens=len(positions) if positions else int(self.starts[-1]),
            n_rows=len(rows),
            positions=self.positions.ctypes.data,
            row_starts=self.starts.ctypes.data,
            kv_tokens=self.kv.ctypes.data,
            groups=ctypes.pointer(self.group),
        )


def _plan(
    capacity: int, n_tokens: int, n_rows: int
) -> tuple[structs.AttentionPlan, list[np.ndarray]]:
    sizes = (4 * (capacity + n_tokens), capacity, *(n_rows for _ in range(6)))
    kept = [np.zeros(max(size, 1), dtype=np.int32) for size in sizes]
    return structs.AttentionPlan(0, 0, capacity, *(each.ctypes.data for each in kept)), kept


def slots_of(shape: Shape, sequence: Sequence, first: int = 0) -> list[int]:
    size = shape.block_tokens
    return [sequence.table[p // size] * size + p % size for p in range(first, sequence.length)]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_rows(
    shape: Shape, lengths: list[tuple[int, int]], seed: int, shared: int = 0
) -> tuple[int, list[Sequence]]:
    """Rows of (length, tokens added) over blocks in random order; the first `shared` blocks of all
    are the same; blocks that left the window are freed."""
    size = shape.block_tokens
    needs = [-(-length // size) for length, _ in lengths]
    total = sum(needs) + shared
    ids = (1 + np.random.default_rng(seed).permutation(total)).tolist()
    prefix, free = ids[:shared], iter(ids[shared:])
    rows = []
    for (length, n), need in zip(lengths, needs, strict=True):
        common = min(shared, (length - n) // size)
        table = prefix[:common] + [next(free) for _ in range(need - common)]
        if shape.window:
            gone = max(0, length - n - shape.window + 1) // size
            table[:gone] = [0] * gone
        rows.append(Sequence(length, n, table))
    return total, rows


def filled(library: ctypes.CDLL, shape: Shape, num_blocks: int, rows: list[Sequence]) -> Rig:
    """Numbers in every slot that some row has, unused slots of their blocks large, and NaN in all
    other blocks."""
    rig = Rig(library, shape, num_blocks)
    used = sorted({block for row in rows for block in row.table if block})
    slots = [b * shape.block_tokens + i for b in used for i in range(shape.block_tokens)]
    heads = shape.n_heads + 2 * shape.kv_heads
    qkv = numbers(7, len(slots), heads * shape.head_dim)
    owned = {slot for row in rows for slot in slots_of(shape, row)}
    unused = torch.tensor([slot not in owned for slot in slots])
    qkv[unused] = 3e4
    rig.write(qkv, [0] * len(slots), slots)
    for block in set(range(num_blocks + 1)) - set(used):
        rig.memory[block] = 0xFF  # NaN in all types that have one, and NaN scales for int8
    return rig


def expected(rig: Rig, q: torch.Tensor, rows: list[Sequence]) -> torch.Tensor:
    """Token by token in float64, over the decoded pool."""
    shape, out, at = rig.shape, torch.zeros(q.shape, dtype=torch.float64), 0
    each = shape.n_heads // shape.kv_heads
    for row in rows:
        k, v = (
            torch.cat([rig.read(part, block) for block in row.table], dim=1).double()
            for part in (KEY, VALUE)
        )
        for position in range(row.length - row.n, row.length):
            low = max(0, position - shape.window + 1) if shape.window else 0
            seen_k = k[:, low : position + 1].repeat_interleave(each, 0)
            seen_v = v[:, low : position + 1].repeat_interleave(each, 0)
            scores = torch.einsum("hd,htd->ht", q[at].double(), seen_k)
            if shape.softcap:
                scores = shape.softcap * torch.tanh(scores / shape.softcap)
            out[at] = torch.einsum("ht,htd->hd", scores.softmax(-1), seen_v)
            at += 1
    return out


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a.view(torch.int32) == b.view(torch.int32)).all())


@pytest.fixture(params=ISAS)
def library(request: pytest.FixtureRequest, libraries: dict[str, ctypes.CDLL]) -> ctypes.CDLL:
    if request.param not in libraries:
        pytest.skip(f"this machine has no {request.param}")
    return libraries[request.param]


@pytest.fixture
def best(libraries: dict[str, ctypes.CDLL]) -> ctypes.CDLL:
    return list(libraries.values())[-1]


MIXED = [(1, 1), (127, 1), (128, 1), (129, 1), (60, 60), (300, 37), (700, 1), (513, 2), (16, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"window": 100, "head_dim": 64},
        {"softcap": 5.0, "n_heads": 8, "kv_heads": 1},
        {"block_tokens": 64, "n_heads": 3, "kv_heads": 3, "head_dim": 16},
        {"block_tokens": 256, "n_heads": 5, "kv_heads": 1, "head_dim": 48},
    ],
)
def test_agrees_with_float64(library: ctypes.CDLL, dtype: int, change: dict[str, int]) -> None:
    shape = dataclasses.replace(Shape(dtype=dtype), **change)
    num_blocks, rows = random_rows(shape, MIXED, 3)
    rig = filled(library, shape, num_blocks + 3, rows)
    q = numbers(1, sum(row.n for row in rows), shape.n_heads, shape.head_dim) * 0.5
    out = rig.attend(q, rows, threads=2)
    torch.testing.assert_close(out.double(), expected(rig, q, rows), rtol=2e-5, atol=2e-5)


shapes = st.builds(
    lambda kv, group, dim, dtype, block, window, softcap: Shape(
        n_heads=kv * group,
        kv_heads=kv,
        head_dim=16 * dim,
        dtype=dtype,
        block_tokens=block,
        window=window,
        softcap=softcap,
    ),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(DTYPES),
    st.sampled_from([16, 32, 64, 48]),
    st.one_of(st.just(0), st.integers(1, 300)),
    st.sampled_from([0.0, 2.0]),
)
lengths = st.lists(
    st.integers(1, 700).flatmap(
        lambda length: st.tuples(
            st.just(length), st.one_of(st.just(1), st.integers(1, min(length, 40)))
        )
    ),
    min_size=1,
    max_size=9,
)
thorough = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@thorough
@given(shape=shapes, lengths=lengths, seed=st.integers(0, 99))
def test_any_batch(
    best: ctypes.CDLL, shape: Shape, lengths: list[tuple[int, int]], seed: int
) -> None:
    num_blocks, rows = random_rows(shape, lengths, seed)
    rig = filled(best, shape, num_blocks, rows)
    q = numbers(seed, sum(row.n for row in rows), shape.n_heads, shape.head_dim)
    out = rig.attend(q, rows)
    torch.testing.assert_close(out.double(), expected(rig, q, rows), rtol=1e-4, atol=3e-5)


@thorough
@given(shape=shapes, lengths=lengths, seed=st.integers(0, 99), shared=st.integers(0, 24))
def test_bits_do_not_depend_on_company_threads_or_room(
    best: ctypes.CDLL, shape: Shape, lengths: list[tuple[int, int]], seed: int, shared: int
) -> None:
    num_blocks, rows = random_rows(shape, lengths, seed, 0 if shape.window else shared)
    rig = filled(best, shape, num_blocks, rows)
    q = numbers(seed, sum(row.n for row in rows), shape.n_heads, shape.head_dim)
    out = rig.attend(q, rows)
    assert same(out, rig.attend(q, rows, threads=2))
    assert same(out, rig.attend(q, rows, threads=3, share=False))
    assert same(out, rig.attend(q, rows, capacity=seed % 7))
    at = 0
    for row in rows:
        assert same(out[at : at + row.n], rig.attend(q[at : at + row.n], [row]))
        at += row.n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("change", [{}, {"window": 70}, {"softcap": 3.0}])
def test_whole_prompt_equals_any_chunks(
    library: ctypes.CDLL, dtype: int, change: dict[str, int]
) -> None:
    """K and V written and read in one step, or in several, down to one token each."""
    shape = dataclasses.replace(Shape(dtype=dtype), **change)
    length = 290
    _, (whole,) = random_rows(dataclasses.replace(shape, window=0), [(length, length)], 5)
    heads = shape.n_heads + 2 * shape.kv_heads
    qkv = numbers(2, length, heads * shape.head_dim)
    slots = slots_of(shape, whole)

    def run(cuts: list[int]) -> tuple[torch.Tensor, np.ndarray]:
        rig, out = Rig(library, shape, len(whole.table)), []
        for begin, end in zip([0, *cuts], [*cuts, length], strict=True):
            q = rig.write(qkv[begin:end], list(range(begin, end)), slots[begin:end])
            out.append(rig.attend(q, [Sequence(end, end - begin, whole.table)]))
        return torch.cat(out), rig.memory

    expected, memory = run([])
    assert expected.isfinite().all()
    for cuts in ([1, 17, 128, 200], [255, 256, 257, 258, 289], [144]):
        out, written = run(cuts)
        assert same(out, expected)
        assert (written == memory).all()


def test_rows_with_one_prefix_read_it_together(library: ctypes.CDLL) -> None:
    """Two prefixes and a stranger: the chunks that rows have in common become one item each."""
    shape = Shape()
    first, second = list(range(1, 33)), [*range(1, 9), *range(40, 64)]
    rows = [
        Sequence(512 + 10 * i, 1, [*(first if i % 2 else second), *range(70 + 9 * i, 79 + 9 * i)])
        for i in range(6)
    ]
    rows.insert(3, Sequence(300, 1, list(range(200, 219))))
    rig = filled(library, shape, 230, rows)
    q = numbers(4, len(rows), shape.n_heads, shape.head_dim)
    out = rig.attend(q, rows)
    counts = {(chunk, -count) for _, _, count, chunk in rig.items.tolist() if count < -1}
    assert counts == {(0, 6), (1, 3), (2, 3), (3, 3)}
    assert same(out, rig.attend(q, rows, share=False, threads=2))
    torch.testing.assert_close(out.double(), expected(rig, q, rows), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_a_broken_number_shows_and_stays_with_its_request(
    library: ctypes.CDLL, dtype: int, broken: float, part: int, softcap: float
) -> None:
    """In q, K or V of one token, anywhere in a context of several chunks."""
    shape = Shape(dtype=dtype, softcap=softcap)
    num_blocks, rows = random_rows(shape, [(400, 1), (400, 1), (80, 1)], 9)
    rig = filled(library, shape, num_blocks, rows)
    heads = numbers(3, 1, shape.n_heads + 2 * shape.kv_heads, shape.head_dim)
    first = (0, shape.n_heads, shape.n_heads + shape.kv_heads)[part]
    stop = (shape.n_heads, shape.n_heads + shape.kv_heads, heads.shape[1])[part]
    heads[0, first:stop, 3] = broken
    position = 399 if part == 0 else 77
    slot = slots_of(shape, rows[1])[position]
    q = numbers(4, 3, shape.n_heads, shape.head_dim)
    before = rig.attend(q, rows)
    q[1] = rig.write(heads.view(1, -1), [position], [slot])[0]
    for capacity in (100, 0):
        out = rig.attend(q, rows, capacity=capacity)
        assert out[1].isnan().all()
        assert same(out[::2], before[::2])


def test_what_is_not_seen_may_be_broken(library: ctypes.CDLL) -> None:
    """Slots past a row's end may hold what an earlier owner broke."""
    for dtype in DTYPES:
        shape = Shape(dtype=dtype)
        num_blocks, rows = random_rows(shape, [(21, 1), (139, 4), (130, 1)], 9)
        rig = filled(library, shape, num_blocks, rows)
        q = numbers(4, 6, shape.n_heads, shape.head_dim)
        before = rig.attend(q, rows)
        qkv = torch.full((1, (shape.n_heads + 2 * shape.kv_heads) * shape.head_dim), torch.nan)
        for row in rows:
            block = row.table[-1] * shape.block_tokens
            for place in range(row.length % shape.block_tokens, shape.block_tokens):
                rig.write(qkv, [0], [block + place])
        assert same(rig.attend(q, rows), before)


@pytest.mark.parametrize(("head_dim", "rope_dim"), [(32, 32), (64, 64), (64, 32), (48, 16)])
@pytest.mark.parametrize("normed", [False, True])
def test_rope_write_agrees_with_the_reference(
    library: ctypes.CDLL, head_dim: int, rope_dim: int, normed: bool
) -> None:
    shape = Shape(head_dim=head_dim, dtype=F32)
    n = 40
    table = RopeTable(RopeConfig(dim=rope_dim, theta=1e4), 500)
    positions = (torch.arange(n) * 11 % 500).tolist()
    heads = numbers(5, n, shape.n_heads + 2 * shape.kv_heads, head_dim)
    norms = (numbers(6, head_dim), numbers(8, head_dim)) if normed else None
    rig = Rig(library, shape, 4)
    slots = list(range(16, 16 + n))
    slots[5] = -1
    q = rig.write(
        heads.view(n, -1), positions, slots, rope_dim=rope_dim, norms=norms, table=table, threads=2
    )
    turned = heads[:, : shape.n_heads + shape.kv_heads]
    if norms:
        normal = torch.nn.functional.rms_norm(turned, (head_dim,), eps=1e-6)
        turned = torch.cat(
            (normal[:, : shape.n_heads] * norms[0], normal[:, shape.n_heads :] * norms[1]), 1
        )
    turned = table.at(torch.tensor(positions)).apply(turned)
    torch.testing.assert_close(q, turned[:, : shape.n_heads] * shape.scale, rtol=1e-5, atol=1e-6)
    for part, wanted in (
        (KEY, turned[:, shape.n_heads :]),
        (VALUE, heads[:, shape.n_heads + shape.kv_heads :]),
    ):
        stored = torch.cat([rig.read(part, block) for block in range(5)], dim=1).transpose(0, 1)
        stored = stored[16 : 16 + n]
        assert (stored[5] == 0).all()
        kept = torch.arange(n) != 5
        torch.testing.assert_close(stored[kept], wanted[kept], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_stored_is_close(library: ctypes.CDLL, dtype: int) -> None:
    """V as it comes back: exactly, or within what the type can tell apart."""
    shape = Shape(dtype=dtype, head_dim=64)
    heads = shape.n_heads + 2 * shape.kv_heads
    x = numbers(5, 16, heads, 64) * torch.logspace(-20, 20, 16).view(16, 1, 1)
    x[3] = 0
    rig = Rig(library, shape, 1)
    rig.write(x.view(16, -1), [0] * 16, list(range(16, 32)))
    v = x[:, -shape.kv_heads :].transpose(0, 1)
    stored = rig.read(VALUE, 1)
    if dtype == F32:
        assert (stored == v).all()
    elif dtype == BF16:
        assert (stored == v.bfloat16().float()).all()
    elif dtype == F16:
        assert (stored == v.clamp(-65504, 65504).half().float()).all()
    else:
        largest = v.abs().amax(-1, keepdim=True)
        step = {INT8: largest / 254, FP8: torch.maximum(v.abs() / 16, largest / 448 / 1024)}[dtype]
        assert ((stored - v).abs() <= step * 1.0001).all()


def test_all_halves_come_back(library: ctypes.CDLL) -> None:
    """Every float16 number is stored as itself; others are rounded as torch does, or saturate."""
    shape = Shape(dtype=F16, head_dim=256, n_heads=1, kv_heads=1, layers=1, layer=0)
    rig = Rig(library, shape, 16)
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    finite = torch.where(codes.view(torch.float16).isfinite(), codes, 0).view(torch.float16)
    # 256 tokens of 256 numbers: K and V are numbers in other places of a block.
    exact = finite.float().view(256, 256)
    ordered = finite.float().unique()
    halfway = (ordered[:-1] + ordered[1:]) / 2  # ties, to even
    beside = torch.stack((halfway.nextafter(ordered[1:]), halfway.nextafter(ordered[:-1])))
    beyond = torch.tensor([65519.0, 65520.0, 65536.0, 3e38, 1e-30, 2**-149])
    slots = list(range(16, 16 + 256))
    for x in (exact, halfway, *beside, torch.cat((beyond, -beyond))):
        numbers = torch.nn.functional.pad(x.flatten(), (0, 65536 - x.numel())).view(256, 256)
        rig.write(numbers.repeat(1, 3), [0] * 256, slots)
        stored = [torch.cat([rig.read(part, b)[0] for b in range(1, 17)]) for part in (KEY, VALUE)]
        wanted = numbers.clamp(-65504, 65504).half().float()
        assert torch.equal(stored[0], wanted)
        assert torch.equal(stored[1], wanted)
    q = torch.zeros(1, 1, 256)
    rig.write(exact[:1].repeat(1, 3), [0], [16])
    assert torch.equal(rig.attend(q, [Sequence(1, 1, [1])])[0, 0], exact[0])


def test_all_codes_of_fp8_come_back(library: ctypes.CDLL) -> None:
    """Every e4m3 number is stored as itself, and torch's reading of the bytes agrees."""
    shape = Shape(dtype=FP8, head_dim=256, n_heads=1, kv_heads=1, layers=1, layer=0)
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    values = codes.view(torch.float8_e4m3fn).float()
    finite = torch.where(values.isnan(), torch.zeros(()), values)
    rig = Rig(library, shape, 1)
    rig.write(finite.repeat(3).view(1, -1), [0], [16])
    stored = rig.read(VALUE, 1)[0, 0]
    assert (stored == finite).all()
    table = [1]
    q = torch.zeros(1, 1, 256)
    out = rig.attend(q, [Sequence(1, 1, table)])
    assert (out[0, 0] == finite).all()
    between = (finite.unique()[:-1] + finite.unique()[1:]) / 2  # ties, to even
    x = torch.zeros(256)
    x[: len(between)] = between
    x[255] = 448.0
    rig.write(x.repeat(3).view(1, -1), [0], [17])
    assert (rig.read(VALUE, 1)[0, 1] == x.to(torch.float8_e4m3fn).float()).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_tokens", [16, 48])
def test_blocks_are_copied_in_part(library: ctypes.CDLL, dtype: int, block_tokens: int) -> None:
    shape = Shape(dtype=dtype, block_tokens=block_tokens)
    rig = Rig(library, shape, 3)
    heads = (shape.n_heads + 2 * shape.kv_heads) * shape.head_dim
    n = block_tokens
    rig.write(numbers(1, n, heads), list(range(n)), list(range(n, 2 * n)))
    for count in (1, 2, 15, 16, n - 1, n):
        rig.memory[2] = 0xFF
        rig.library.octavo_kv_copy(ctypes.byref(rig.pool), shape.layers, 1, 2, count)
        for part in (KEY, VALUE):
            source, target = rig.read(part, 1), rig.read(part, 2)
            assert (target[:, :count] == source[:, :count]).all()
            assert (target[:, count:] == 0).all()
        assert (rig.memory[2] == rig.memory[1]).all() == (count == n)
    rig.library.octavo_kv_zero(ctypes.byref(rig.pool), 2)
    assert not rig.memory[2].any()
    assert rig.memory[1].any()
