"""Products of float rows with 16-bit weights: the same bits in any company.

How exact they are: `test_op_cases`.
"""

from __future__ import annotations

import pytest
import torch

from octavo.compute.native import structs
from octavo.compute.native.buffers import floats
from octavo.compute.native.library import Program, Workers, load, usable_isas
from octavo.compute.native.panels import Floats, Panels, interleave, pack

DTYPES = [torch.bfloat16, torch.float16]


def matrix(n: int, k: int, dtype: torch.dtype, *, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return (0.1 * torch.randn(n, k)).to(dtype)


def product(
    workers: Workers,
    panels: Panels,
    x: torch.Tensor,
    *,
    onto: torch.Tensor | None = None,
) -> torch.Tensor:
    n = panels.weights.n
    out = floats(len(x), n) if onto is None else onto.clone()
    arguments = structs.Linear(
        weights=panels.weights,
        floats=x.data_ptr(),
        y=out.data_ptr(),
        y_stride=n,
        add=int(onto is not None),
    )
    program = Program(workers.library, [("linear_float", arguments)])
    workers.run(program, structs.Step(n_tokens=len(x)))
    return out


def gated(workers: Workers, panels: Panels, x: torch.Tensor) -> torch.Tensor:
    out = floats(len(x), panels.weights.n // 2)
    arguments = structs.Gate(
        weights=panels.weights,
        floats=x.data_ptr(),
        out_floats=out.data_ptr(),
    )
    program = Program(workers.library, [("gate_float", arguments)])
    workers.run(program, structs.Step(n_tokens=len(x)))
    return out


def test_the_residual_is_added_to(workers: Workers) -> None:
    panels, x, onto = (
        pack(Floats(matrix(48, 256, DTYPES[0]))),
        torch.randn(40, 256),
        torch.ones(40, 48),
    )
    once = product(workers, panels, x)
    assert torch.equal(product(workers, panels, x, onto=onto), once + 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_alone_and_among_many_gives_the_same_bits(
    workers: Workers, dtype: torch.dtype
) -> None:
    panels, x = pack(Floats(matrix(80, 512, dtype))), torch.randn(300, 512)
    found = product(workers, panels, x)
    for first, last in ((0, 1), (3, 5), (5, 9), (9, 42), (255, 258)):
        assert torch.equal(product(workers, panels, x[first:last].contiguous()), found[first:last])


def test_builds_that_fuse_agree_bit_for_bit() -> None:
    """Each sum is one chain of fused operations in the order of k, whatever the width."""
    fusing = [isa for isa in usable_isas() if isa != "scalar"]
    panels, x = pack(Floats(matrix(80, 512, torch.bfloat16))), torch.randn(9, 512)
    results = []
    for isa in fusing:
        workers = Workers(load(isa), 2)
        results.append(product(workers, panels, x))
        workers.close()
    assert all(torch.equal(each, results[0]) for each in results)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_row_stays_broken_and_its_neighbours_whole(workers: Workers, bad: float) -> None:
    panels, x = pack(Floats(matrix(16, 64, torch.bfloat16))), torch.randn(3, 64)
    whole = product(workers, panels, x)
    x[1, 40] = bad
    broken = product(workers, panels, x)
    assert not bool(broken[1].isfinite().any())
    assert torch.equal(broken[0], whole[0])
    assert torch.equal(broken[2], whole[2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gated_row_alone_and_among_many_gives_the_same_bits(
    workers: Workers, dtype: torch.dtype
) -> None:
    gate, up = (matrix(64, 256, dtype, seed=seed) for seed in (1, 2))
    panels, x = pack(interleave(Floats(gate), Floats(up))), torch.randn(300, 256)
    found = gated(workers, panels, x)
    for first, last in ((0, 1), (5, 9), (255, 258)):
        assert torch.equal(gated(workers, panels, x[first:last].contiguous()), found[first:last])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_embedding_rows_are_the_stored_ones(workers: Workers, dtype: torch.dtype) -> None:
    weights = matrix(50, 64, dtype)
    panels = pack(Floats(weights))
    tokens = torch.tensor([0, 49, 17, 17])
    out = floats(4, 64)
    arguments = structs.Embed(weights=panels.weights, x=out.data_ptr(), scale=1.0)
    program = Program(workers.library, [("embed", arguments)])
    workers.run(program, structs.Step(n_tokens=4, tokens=tokens.data_ptr()))
    assert torch.equal(out, weights[tokens].float())
