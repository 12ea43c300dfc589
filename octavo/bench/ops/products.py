"""Products as problems: rows · weights, and the gated half of an MLP."""

from __future__ import annotations

from typing import Any

import torch

from octavo.bench.ops.matrices import packed, packed_gate
from octavo.bench.ops.problem import Problem, Sizes
from octavo.compute.native import structs
from octavo.compute.native.buffers import TILE_ROWS, Activations, floats
from octavo.compute.native.panels import Panels
from octavo.compute.native.products import Recorded

ACTIVATIONS = ("silu", "gelu_tanh")


class Rows:
    """Random rows [n_rows, k] in the form that `readers` of a format multiply with."""

    def __init__(self, sizes: Sizes, *, as_floats: bool) -> None:
        source = torch.Generator().manual_seed(sizes.seed)
        self.x = torch.randn(sizes.n_rows, sizes.k, generator=source)
        self.activations = None if as_floats else Activations(sizes.n_rows, sizes.k)

    def prepare(self) -> Recorded:
        if self.activations is None:
            return []
        return [("quantise", structs.Quantise(x=self.x.data_ptr(), to=self.activations.struct))]

    def operands(self) -> dict[str, Any]:
        """The fields of `Linear` and `Gate` that say where the rows are."""
        if self.activations is None:
            return {"floats": self.x.data_ptr()}
        return {"x": self.activations.struct}

    def values(self) -> torch.Tensor:
        """What they stand for: float64 [n_rows, k]."""
        if self.activations is None:
            return self.x.double()
        return stored_values(self.activations, *self.x.shape)

    @property
    def n_bytes(self) -> int:
        return n_bytes_of(*self.x.shape, as_floats=self.activations is None)


def n_bytes_of(n_rows: int, k: int, *, as_floats: bool) -> int:
    """Of rows: float32, or bytes with a scale, a moment and three sums per 32."""
    return n_rows * k * 4 if as_floats else n_rows * (k + k // 32 * 20)


def stored_values(activations: Activations, n_rows: int, k: int) -> torch.Tensor:
    """Byte · scale of quantised rows, float64 [n_rows, k]."""
    tiles = activations.q.view(-1, k // 4, TILE_ROWS, 4).transpose(1, 2).reshape(-1, k)
    scales = activations.scale.view(-1, k // 32, TILE_ROWS).transpose(1, 2).reshape(-1, k // 32)
    whole = tiles.double().view(-1, k // 32, 32) * scales.double()[:, :, None]
    return whole.view(-1, k)[:n_rows]


def linear(type_name: str, sizes: Sizes) -> Problem:
    """y = x · Wᵀ + bias. Deviation: of a sum, relative to the sum of its terms' sizes, plus 1."""
    panels, weights = packed(type_name, sizes.n, sizes.k, seed=sizes.seed)
    rows = Rows(sizes, as_floats=panels.takes_floats)
    bias, out = torch.randn(sizes.n), floats(sizes.n_rows, sizes.n)
    arguments = structs.Linear(
        weights=panels.weights,
        bias=bias.data_ptr(),
        y=out.data_ptr(),
        y_stride=sizes.n,
        **rows.operands(),
    )

    def deviation() -> float:
        x = rows.values()
        sizes_of_terms = x.abs() @ weights.abs().T
        return float(((out - (x @ weights.T + bias)).abs() / (sizes_of_terms + 1)).max())

    return Problem(
        prepare=rows.prepare(),
        ops=[(named("linear", panels), arguments)],
        step=structs.Step(n_tokens=sizes.n_rows),
        n_bytes=panels.n_bytes + rows.n_bytes + 4 * sizes.n + 4 * out.numel(),
        flops=2 * sizes.n_rows * sizes.n * sizes.k,
        deviation=deviation,
        keep=(panels, rows, bias, out),
    )


def gate(type_name: str, sizes: Sizes, *, activation: str = ACTIVATIONS[0]) -> Problem:
    """act(x · Gᵀ) · (x · Uᵀ), quantised where the weights are.

    Deviation: in steps of the group of 32 it is in, plus 2e-6; of floats relative to its size
    plus 1.
    """
    panels, gate_values, up_values = packed_gate(type_name, sizes.n, sizes.k, seed=sizes.seed)
    rows = Rows(sizes, as_floats=panels.takes_floats)
    width, as_floats = sizes.n, panels.takes_floats
    out = floats(sizes.n_rows, width) if as_floats else Activations(sizes.n_rows, width)
    where: dict[str, Any] = (
        {"out_floats": out.data_ptr()} if isinstance(out, torch.Tensor) else {"out": out.struct}
    )
    arguments = structs.Gate(
        weights=panels.weights,
        activation=ACTIVATIONS.index(activation),
        **rows.operands(),
        **where,
    )

    def deviation() -> float:
        x = rows.values()
        expected = _act(activation, x @ gate_values.T) * (x @ up_values.T)
        if isinstance(out, torch.Tensor):
            return float(((out - expected).abs() / (expected.abs() + 1)).max())
        found = stored_values(out, sizes.n_rows, width)
        step = expected.view(sizes.n_rows, -1, 32).abs().amax(-1, keepdim=True) / 127
        error = (found - expected).view(sizes.n_rows, -1, 32).abs()
        return float((error / (step + 2e-6)).max())

    return Problem(
        prepare=rows.prepare(),
        ops=[(named("gate", panels), arguments)],
        step=structs.Step(n_tokens=sizes.n_rows),
        n_bytes=panels.n_bytes
        + rows.n_bytes
        + n_bytes_of(sizes.n_rows, width, as_floats=as_floats),
        flops=4 * sizes.n_rows * width * sizes.k,
        deviation=deviation,
        keep=(panels, rows, out),
    )


def named(op: str, panels: Panels) -> str:
    """The op that multiplies with those panels."""
    return f"{op}_float" if panels.takes_floats else op


def _act(name: str, x: torch.Tensor) -> torch.Tensor:
    if name == "silu":
        return torch.nn.functional.silu(x)
    return torch.nn.functional.gelu(x, approximate="tanh")
