"""Products of quantised rows with packed weights, against the same sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.compute.gguf_quants import BLOCK_BYTES, dequantise
from octavo.compute.native import structs
from octavo.compute.native.buffers import Activations, floats
from octavo.compute.native.gguf_grids import GRIDS, grid_of
from octavo.compute.native.library import Program, Workers
from octavo.compute.native.panels import Panels, interleave, pack
from octavo.core.gguf_types import GGUF_TYPES

ELEMENTS = {stored.name: stored.block_elements for stored in GGUF_TYPES.values()}


def blocks(type_name: str, n: int, k: int, *, seed: int = 0) -> torch.Tensor:
    """Random rows of a GGUF type: any bits, scales of moderate size."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (n, k // ELEMENTS[type_name], BLOCK_BYTES[type_name]), np.uint8)
    halves = {
        "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
        "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    }[type_name]  # fmt: skip
    for at in halves:
        scales = rng.uniform(-0.1, 0.1, raw.shape[:2]).astype(np.float16)
        raw[:, :, at : at + 2] = scales.view(np.uint8).reshape(*raw.shape[:2], 2)
    return torch.from_numpy(raw.reshape(n, -1))


def matrix(type_name: str, n: int, k: int, *, seed: int = 0) -> tuple[Panels, torch.Tensor]:
    """Packed, and its values as float64."""
    raw = blocks(type_name, n, k, seed=seed)
    return pack(grid_of(raw, type_name)), dequantise(raw, type_name, name="w").double()


class Rows:
    """Random rows, quantised by the kernel, and what they stand for."""

    def __init__(self, workers: Workers, n: int, k: int, *, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.n = n
        self.x = torch.randn(n, k)
        self.activations = Activations(n, k)
        quantise = structs.Quantise(x=self.x.data_ptr(), to=self.activations.struct)
        program = Program(workers.library, [("quantise", quantise)])
        workers.run(program, structs.Step(n_tokens=n))

    def values(self) -> torch.Tensor:
        """float64 [n, k]: byte · scale."""
        k = self.x.shape[1]
        tiles = self.activations.q.view(-1, k // 4, 8, 4).transpose(1, 2).reshape(-1, k)
        scales = self.activations.scale.view(-1, k // 32, 8).transpose(1, 2).reshape(-1, k // 32)
        whole = tiles.double().view(-1, k // 32, 32) * scales.double()[:, :, None]
        return whole.view(-1, k)[: self.n]


def product(
    workers: Workers, panels: Panels, rows: Rows, *, bias: torch.Tensor | None = None
) -> torch.Tensor:
    out = floats(rows.n, panels.weights.n)
    arguments = structs.Linear(
        weights=panels.weights,
        x=rows.activations.struct,
        bias=None if bias is None else bias.data_ptr(),
        y=out.data_ptr(),
        y_stride=panels.weights.n,
    )
    workers.run(Program(workers.library, [("linear", arguments)]), structs.Step(n_tokens=rows.n))
    return out


def test_rows_are_quantised_to_the_nearest_of_255_steps(workers: Workers) -> None:
    rows = Rows(workers, 11, 96)
    step = rows.x.view(11, 3, 32).abs().amax(-1) / 127
    error = (rows.values().view(11, 3, 32) - rows.x.double().view(11, 3, 32)).abs()
    assert bool((error <= step[:, :, None] * 0.5001).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_row_stays_broken_and_its_neighbours_whole(workers: Workers, bad: float) -> None:
    panels, _ = matrix("Q4_1", 16, 64)
    rows = Rows(workers, 3, 64)
    whole = product(workers, panels, rows)
    rows.x[1, 40] = bad
    quantise = structs.Quantise(x=rows.x.data_ptr(), to=rows.activations.struct)
    workers.run(Program(workers.library, [("quantise", quantise)]), structs.Step(n_tokens=3))
    broken = product(workers, panels, rows)
    assert not bool(broken[1].isfinite().any())
    assert torch.equal(broken[0], whole[0])
    assert torch.equal(broken[2], whole[2])


@pytest.mark.parametrize("type_name", list(GRIDS))
@pytest.mark.parametrize(("n", "n_rows"), [(16, 1), (33, 3), (48, 40), (17, 300)])
def test_equals_the_sum_in_double_precision(
    workers: Workers, type_name: str, n: int, n_rows: int
) -> None:
    panels, weights = matrix(type_name, n, 256)
    rows = Rows(workers, n_rows, 256)
    bias = torch.randn(n)
    expected = rows.values() @ weights.T + bias.double()
    size = rows.values().abs() @ weights.abs().T  # rounding is relative to what was added up
    found = product(workers, panels, rows, bias=bias)
    assert bool(((found - expected).abs() <= 1e-5 * size + 1e-5).all())


@pytest.mark.parametrize("type_name", list(GRIDS))
def test_a_row_alone_and_among_many_gives_the_same_bits(workers: Workers, type_name: str) -> None:
    panels, _ = matrix(type_name, 80, 512)
    together = Rows(workers, 70, 512)
    found = product(workers, panels, together)
    for first, last in ((0, 1), (3, 5), (5, 9), (9, 42)):
        alone = Rows(workers, last - first, 512)
        alone.x.copy_(together.x[first:last])
        quantise = structs.Quantise(x=alone.x.data_ptr(), to=alone.activations.struct)
        program = Program(workers.library, [("quantise", quantise)])
        workers.run(program, structs.Step(n_tokens=alone.n))
        assert torch.equal(product(workers, panels, alone), found[first:last])


def test_the_residual_is_added_to(workers: Workers) -> None:
    panels, _ = matrix("Q4_0", 32, 64)
    rows = Rows(workers, 5, 64)
    once = product(workers, panels, rows)
    out = torch.ones(5, 32)
    arguments = structs.Linear(
        weights=panels.weights, x=rows.activations.struct, y=out.data_ptr(), y_stride=32, add=1
    )
    workers.run(Program(workers.library, [("linear", arguments)]), structs.Step(n_tokens=5))
    assert torch.equal(out, once + 1)


@pytest.mark.parametrize(("activation", "name"), [(0, "silu"), (1, "gelu_tanh")])
@pytest.mark.parametrize("type_name", ["Q4_1", "Q8_0", "Q6_K"])
@pytest.mark.parametrize("n_rows", [1, 5, 40, 300])
def test_the_gate_equals_two_products_and_an_activation(
    workers: Workers, type_name: str, n_rows: int, activation: int, name: str
) -> None:
    width, k = 64, 256
    raw = [blocks(type_name, width, k, seed=seed) for seed in (1, 2)]
    gate, up = (dequantise(each, type_name, name="w").double() for each in raw)
    panels = pack(interleave(*(grid_of(each, type_name) for each in raw)))
    rows, out = Rows(workers, n_rows, k), Activations(n_rows, width)
    arguments = structs.Gate(
        weights=panels.weights,
        x=rows.activations.struct,
        out=out.struct,
        activation=activation,
    )
    workers.run(Program(workers.library, [("gate", arguments)]), structs.Step(n_tokens=n_rows))
    x = rows.values()
    functions = {
        "silu": torch.nn.functional.silu,
        "gelu_tanh": lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
    }
    expected = functions[name](x @ gate.T) * (x @ up.T)
    scales = out.scale.view(-1, width // 32, 8).transpose(1, 2).reshape(-1, width // 32)
    stored = out.q.view(-1, width // 4, 8, 4).transpose(1, 2).reshape(-1, width // 32, 32)
    found = (stored.double() * scales.double()[:, :, None]).view(-1, width)[:n_rows]
    step = expected.view(n_rows, -1, 32).abs().amax(-1, keepdim=True) / 127
    assert bool(((found - expected).view(n_rows, -1, 32).abs() <= 0.51 * step + 1e-6).all())
