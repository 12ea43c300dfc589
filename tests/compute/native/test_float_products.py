"""Products of float rows with 16-bit weights: against float64, and the same bits in any company."""

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
    bias: torch.Tensor | None = None,
    onto: torch.Tensor | None = None,
) -> torch.Tensor:
    n = panels.weights.n
    out = floats(len(x), n) if onto is None else onto.clone()
    arguments = structs.Linear(
        weights=panels.weights,
        floats=x.data_ptr(),
        bias=None if bias is None else bias.data_ptr(),
        y=out.data_ptr(),
        y_stride=n,
        add=int(onto is not None),
    )
    program = Program(workers.library, [("linear_float", arguments)])
    workers.run(program, structs.Step(n_tokens=len(x)))
    return out


def gated(workers: Workers, panels: Panels, x: torch.Tensor, *, activation: int) -> torch.Tensor:
    out = floats(len(x), panels.weights.n // 2)
    arguments = structs.Gate(
        weights=panels.weights,
        floats=x.data_ptr(),
        out_floats=out.data_ptr(),
        activation=activation,
    )
    program = Program(workers.library, [("gate_float", arguments)])
    workers.run(program, structs.Step(n_tokens=len(x)))
    return out


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "n_rows"), [(16, 1), (33, 3), (80, 7), (48, 40), (17, 300)])
def test_equals_the_sum_in_double_precision(
    workers: Workers, dtype: torch.dtype, n: int, n_rows: int
) -> None:
    weights = matrix(n, 256, dtype)
    x, bias, onto = torch.randn(n_rows, 256), torch.randn(n), torch.randn(n_rows, n)
    expected = x.double() @ weights.double().T + bias.double() + onto.double()
    found = product(workers, pack(Floats(weights)), x, bias=bias, onto=onto)
    size = x.double().abs() @ weights.double().abs().T
    assert bool(((found - expected).abs() <= 1e-5 * size + 1e-5).all())


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


@pytest.mark.parametrize(("activation", "name"), [(0, "silu"), (1, "gelu_tanh")])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_rows", [1, 5, 300])
def test_the_gate_equals_two_products_and_an_activation(
    workers: Workers, dtype: torch.dtype, n_rows: int, activation: int, name: str
) -> None:
    gate, up = (matrix(64, 256, dtype, seed=seed) for seed in (1, 2))
    panels, x = pack(interleave(Floats(gate), Floats(up))), torch.randn(n_rows, 256)
    found = gated(workers, panels, x, activation=activation)
    functions = {
        "silu": torch.nn.functional.silu,
        "gelu_tanh": lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
    }
    expected = functions[name](x.double() @ gate.double().T) * (x.double() @ up.double().T)
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(gated(workers, panels, x[:1].contiguous(), activation=activation), found[:1])


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
