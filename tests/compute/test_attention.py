"""The torch backend against a float64 reference that knows nothing of blocks, tiles or folding."""

from __future__ import annotations

import dataclasses
import itertools
import random
from dataclasses import dataclass

import pytest
import torch

import octavo.compute.torch_plan as torch_plan
from octavo.compute.attention import AttentionShape, select
from octavo.compute.inputs import StepInputs, step_inputs
from octavo.compute.kv_pool import KVPool
from octavo.compute.torch_paged import TorchPaged
from octavo.core.errors import ConfigError
from octavo.core.spec import Full, Group, Sliding
from tests.compute.steps import Steps

LAYERS, HEAD_DIM = 2, 8
POISON = 3e4  # finite and large: any weight but an exact 0 shows


@dataclass
class Sequence:
    """True K and V of one request [tokens, kv_heads, head_dim], and what its row is."""

    k: torch.Tensor
    v: torch.Tensor
    start: int
    end: int
    write_from: int


def naive(
    q: torch.Tensor,
    sequence: Sequence,
    window: int | None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """One row's queries [n, heads, dim], token by token, head by head, in float64."""
    scale = q.shape[2] ** -0.5 if scale is None else scale
    out = torch.zeros(q.shape, dtype=torch.float64)
    group = q.shape[1] // sequence.k.shape[1]
    for i, head in itertools.product(range(q.shape[0]), range(q.shape[1])):
        position = sequence.start + i
        low = 0 if window is None else max(0, position - window + 1)
        keys = sequence.k[low : position + 1, head // group].double()
        values = sequence.v[low : position + 1, head // group].double()
        scores = keys @ q[i, head].double() * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = torch.softmax(scores, dim=0)
        out[i, head] = weights @ values
    return out


def make_pool(kv_heads: int, *, block_tokens: int, num_blocks: int) -> KVPool:
    group = Group(Full(), tuple(range(LAYERS)), kv_heads, HEAD_DIM, "float32")
    pool = KVPool(group, num_blocks, block_tokens=block_tokens)
    pool.tensor.fill_(torch.nan)  # blocks of nobody must never be read
    return pool


def shape_of(
    pool: KVPool, n_heads: int, window: int | None = None, **scores: float
) -> AttentionShape:
    kind = Full() if window is None else Sliding(window)
    return AttentionShape(
        n_heads=n_heads,
        kv_heads=pool.kv_heads,
        head_dim=HEAD_DIM,
        block_tokens=pool.block_tokens,
        dtype="float32",
        groups=(Group(kind, tuple(range(LAYERS)), pool.kv_heads, HEAD_DIM, "float32"),),
        **scores,
    )


def build(
    pool: KVPool, sequences: list[Sequence], *, seed: int
) -> tuple[StepInputs, list[list[int]]]:
    """Store what earlier steps computed, poison the other slots of the rows' blocks."""
    steps = Steps(pool.num_blocks, block_tokens=pool.block_tokens, seed=seed)
    rows, tables = [], []
    for sequence in sequences:
        request = steps.request([0] * len(sequence.k))
        request.computed = sequence.start
        rows.append(steps.row(request, sequence.end, write_from=sequence.write_from))
        assert request.table is not None
        table = request.table.groups[0].tolist()
        tables.append(table)
        pool.tensor[table] = POISON
        for position in range(max(sequence.start, min(sequence.write_from, sequence.end))):
            block, slot = table[position // pool.block_tokens], position % pool.block_tokens
            pool.tensor[block, :, 0, :, slot] = sequence.k[position]
            pool.tensor[block, :, 1, :, slot] = sequence.v[position]
    inputs = step_inputs(rows, block_tokens=pool.block_tokens, device=pool.device)
    return inputs, tables


def random_sequences(rng: random.Random, n_rows: int, *, kv_heads: int) -> list[Sequence]:
    sequences = []
    for _ in range(n_rows):
        end = rng.choice([1, 2, 15, 16, 17, rng.randint(1, 90)])
        kind = rng.choice(["decode", "chunk", "whole", "read_only", "shared_part"])
        start = {"decode": end - 1, "whole": 0, "read_only": end - 1}.get(kind, rng.randrange(end))
        write_from = start
        if kind == "read_only":
            write_from = end
        elif kind == "shared_part":
            write_from = rng.randint(start, end)
        k, v = torch.randn(2, end, kv_heads, HEAD_DIM)
        sequences.append(Sequence(k, v, start, end, write_from))
    return sequences


def attend(
    pool: KVPool,
    sequences: list[Sequence],
    *,
    n_heads: int,
    window: int | None = None,
    seed: int = 0,
    layer: int = 1,
    **scores: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[list[int]]]:
    """(queries per row, outputs per row, block tables). What is not to be stored is garbage."""
    inputs, tables = build(pool, sequences, seed=seed)
    shape = shape_of(pool, n_heads, window, **scores)
    backend = select("torch", shape).kind(pool, shape)
    plan = backend.plan(inputs.attention)
    parts = []
    for sequence in sequences:
        k, v = (part[sequence.start : sequence.end].clone() for part in (sequence.k, sequence.v))
        skipped = max(0, min(sequence.write_from, sequence.end) - sequence.start)
        k[:skipped], v[:skipped] = POISON, POISON
        parts.append((k, v))
    q = torch.randn(inputs.tokens.shape[0], n_heads, HEAD_DIM)
    backend.write(layer, torch.cat([k for k, _ in parts]), torch.cat([v for _, v in parts]), plan)
    out = backend.attend(layer, q, plan)
    lengths = [sequence.end - sequence.start for sequence in sequences]
    return list(q.split(lengths)), list(out.split(lengths)), tables


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several KV tiles, query tiles and passes at test sizes."""
    monkeypatch.setattr(torch_plan, "TILE_TOKENS", 16)
    monkeypatch.setattr(torch_plan, "QUERY_TOKENS", 8)
    monkeypatch.setattr(torch_plan, "PASS_ELEMENTS", 2048)


@pytest.mark.parametrize("window", [None, 1, 7, 40])
@pytest.mark.parametrize("block_tokens", [1, 8, 16, 24])
@pytest.mark.parametrize("heads", [(9, 3), (4, 4), (6, 1)])
def test_ragged_batches_match_the_reference(
    heads: tuple[int, int], block_tokens: int, window: int | None, small_tiles: None
) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        rng = random.Random(f"{heads} {block_tokens} {window} {seed}")
        sequences = random_sequences(rng, rng.randint(1, 7), kv_heads=heads[1])
        pool = make_pool(heads[1], block_tokens=block_tokens, num_blocks=7 * 92 // block_tokens + 9)
        q, out, _ = attend(pool, sequences, n_heads=heads[0], window=window, seed=seed)
        for row, sequence in enumerate(sequences):
            torch.testing.assert_close(
                out[row].double(), naive(q[row], sequence, window), atol=2e-5, rtol=2e-5
            )


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("softcap", [0.3, 5.0])
def test_scores_are_scaled_then_capped_then_masked(
    softcap: float, window: int | None, small_tiles: None
) -> None:
    """A cap after the mask would turn -inf into -cap, and hidden positions would count."""
    torch.manual_seed(5)
    sequences = random_sequences(random.Random(str(softcap)), 6, kv_heads=2)
    pool = make_pool(2, block_tokens=8, num_blocks=100)
    scores = {"scale": 0.7, "softcap": softcap}
    q, out, _ = attend(pool, sequences, n_heads=4, window=window, **scores)
    for row, sequence in enumerate(sequences):
        wanted = naive(q[row], sequence, window, **scores)
        torch.testing.assert_close(out[row].double(), wanted, atol=2e-5, rtol=2e-5)
        assert not torch.allclose(
            out[row].double(), naive(q[row], sequence, window), atol=1e-3
        ) or (sequence.end == 1)


def test_layers_of_a_group_lie_side_by_side_in_its_blocks() -> None:
    """Layers 0 and 2 are full, 1 and 3 have a window: each reads its own table and place."""
    torch.manual_seed(6)
    n_tokens, window = 40, 9
    groups = (
        Group(Full(), (0, 2), 2, HEAD_DIM, "float32"),
        Group(Sliding(window), (1, 3), 2, HEAD_DIM, "float32"),
    )
    pool = make_pool(2, block_tokens=8, num_blocks=12)
    shape = dataclasses.replace(shape_of(pool, 4), groups=groups)
    backend = TorchPaged(pool, shape)
    steps = Steps(12, block_tokens=8, groups=2)
    request = steps.request([0] * n_tokens)
    plan = backend.plan(
        step_inputs([steps.row(request)], block_tokens=8, device=pool.device).attention
    )
    parts = torch.randn(4, 2, n_tokens, 2, HEAD_DIM)
    for layer, (k, v) in enumerate(parts):
        backend.write(layer, k, v, plan)
    for layer, (k, v) in enumerate(parts):
        q = torch.randn(n_tokens, 4, HEAD_DIM)
        wanted = naive(q, Sequence(k, v, 0, n_tokens, 0), window if layer % 2 else None)
        out = backend.attend(layer, q, plan)
        torch.testing.assert_close(out.double(), wanted, atol=2e-5, rtol=2e-5)


def test_default_tile_sizes_match_the_reference() -> None:
    torch.manual_seed(0)
    sequences = []
    for start, end in ((0, 300), (290, 600), (599, 600), (255, 256), (256, 257), (0, 1)):
        k, v = torch.randn(2, end, 3, HEAD_DIM)
        sequences.append(Sequence(k, v, start, end, start))
    pool = make_pool(3, block_tokens=16, num_blocks=130)
    q, out, _ = attend(pool, sequences, n_heads=9)
    for row, sequence in enumerate(sequences):
        torch.testing.assert_close(
            out[row].double(), naive(q[row], sequence, None), atol=2e-5, rtol=2e-5
        )


def test_write_stores_exactly_what_it_should() -> None:
    torch.manual_seed(1)
    k, v = torch.randn(2, 20, 2, HEAD_DIM)
    sequences = [Sequence(k, v, 3, 20, 10), Sequence(k, v, 19, 20, 20)]
    pool = make_pool(2, block_tokens=8, num_blocks=12)
    _, _, tables = attend(pool, sequences, n_heads=2)
    before = pool.tensor[:, 0].clone()  # the other layer: as `build` left it
    table = tables[0]
    for position in range(24):
        block, slot = table[position // 8], position % 8
        held = pool.tensor[block, 1, 0, :, slot]
        wanted = k[position] if position < 20 else torch.full_like(k[0], POISON)
        torch.testing.assert_close(held, wanted, atol=0, rtol=0)
    assert torch.equal(pool.tensor[tables[1], 1], before[tables[1]])
    others = sorted({*range(13)} - {*tables[0], *tables[1]})
    assert pool.tensor[others].isnan().all()
    assert 0 in others


@pytest.mark.parametrize("split", [1, 5, 16, 17, 40, 63])
def test_a_chunked_row_matches_a_whole_one(split: int, small_tiles: None) -> None:
    torch.manual_seed(2)
    k, v = torch.randn(2, 64, 3, HEAD_DIM)
    q = torch.randn(64, 9, HEAD_DIM)
    results = []
    for bounds in ([0, 64], [0, split, 64]):
        pool = make_pool(3, block_tokens=8, num_blocks=10)
        shape = shape_of(pool, 9)
        backend = TorchPaged(pool, shape)
        steps = Steps(10, block_tokens=8)
        request = steps.request([0] * 64)
        parts = []
        for start, end in itertools.pairwise(bounds):
            request.computed = start
            row = steps.row(request, end)
            inputs = step_inputs([row], block_tokens=8, device=pool.device)
            pool.wipe(inputs.begun_blocks)
            plan = backend.plan(inputs.attention)
            backend.write(0, k[start:end], v[start:end], plan)
            parts.append(backend.attend(0, q[start:end], plan))
        results.append(torch.cat(parts))
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-6)


def test_low_precision_pool_and_queries_keep_float32_sums() -> None:
    torch.manual_seed(3)
    group = Group(Full(), (0,), 2, HEAD_DIM, "bfloat16")
    pool = KVPool(group, 40, block_tokens=16)
    shape = AttentionShape(
        n_heads=4,
        kv_heads=2,
        head_dim=HEAD_DIM,
        block_tokens=16,
        dtype="bfloat16",
        groups=(group,),
    )
    backend = TorchPaged(pool, shape)
    steps = Steps(40, block_tokens=16)
    request = steps.request([0] * 500)
    inputs = step_inputs([steps.row(request)], block_tokens=16, device=pool.device)
    plan = backend.plan(inputs.attention)
    k, v = torch.randn(2, 500, 2, HEAD_DIM).bfloat16()
    q = torch.randn(500, 4, HEAD_DIM).bfloat16()
    backend.write(0, k, v, plan)
    out = backend.attend(0, q, plan)
    assert out.dtype == torch.bfloat16
    expected = naive(q, Sequence(k, v, 0, 500, 0), None)
    torch.testing.assert_close(out.double(), expected, atol=1e-3, rtol=2**-8)


def test_a_table_with_nothing_where_the_window_reads_not() -> None:
    torch.manual_seed(4)
    k, v = torch.randn(2, 70, 1, HEAD_DIM)
    for start in (69, 60):
        pool = make_pool(1, block_tokens=8, num_blocks=20)
        shape = shape_of(pool, 2, 9)
        backend = TorchPaged(pool, shape)
        inputs, _ = build(pool, [Sequence(k, v, start, 70, start)], seed=0)
        inputs.attention[0].block_tables[0, : (start - 9 + 1) // 8] = 0
        plan = backend.plan(inputs.attention)
        backend.write(0, k[start:], v[start:], plan)
        q = torch.randn(70 - start, 2, HEAD_DIM)
        out = backend.attend(0, q, plan)
        expected = naive(q, Sequence(k, v, start, 70, start), 9)
        torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=2e-5)


def test_selection_names_who_refused_and_why() -> None:
    groups = (Group(Full(), (0,), 3, 64, "float32"),)
    good = AttentionShape(
        n_heads=9, kv_heads=3, head_dim=64, block_tokens=16, dtype="float32", groups=groups
    )
    taken = select("auto", good)
    assert (taken.name, dict(taken.refused)) == ("torch", {})
    bad = dataclasses.replace(good, kv_heads=2, dtype="int8")
    with pytest.raises(ConfigError, match=r"torch: 9 query heads .* 2 KV heads, K and V in int8"):
        select("auto", bad)
    with pytest.raises(ConfigError, match="must be auto or one of torch; got 'flash'"):
        select("flash", good)
