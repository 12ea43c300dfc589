"""Ops that work row by row as problems: norm, quantise, embed."""

from __future__ import annotations

import torch

from octavo.bench.ops.matrices import packed
from octavo.bench.ops.problem import Problem, Sizes
from octavo.bench.ops.products import n_bytes_of, stored_values
from octavo.compute.native import structs
from octavo.compute.native.buffers import Activations, floats

EPS = 1e-6


def norm(sizes: Sizes) -> Problem:
    """RMSNorm into floats. Deviation: relative to the value's size plus 1."""
    source = torch.Generator().manual_seed(sizes.seed)
    x = torch.randn(sizes.n_rows, sizes.k, generator=source)
    weight, out = torch.rand(sizes.k, generator=source) + 0.5, floats(sizes.n_rows, sizes.k)
    arguments = structs.Norm(
        x=x.data_ptr(), weight=weight.data_ptr(), floats=out.data_ptr(), k=sizes.k, eps=EPS
    )

    def deviation() -> float:
        expected = torch.nn.functional.rms_norm(x.double(), (sizes.k,), eps=EPS) * weight
        return float(((out - expected).abs() / (expected.abs() + 1)).max())

    return Problem(
        prepare=[],
        ops=[("norm", arguments)],
        step=structs.Step(n_tokens=sizes.n_rows),
        n_bytes=4 * (2 * x.numel() + sizes.k),
        flops=4 * x.numel(),
        deviation=deviation,
        keep=(x, weight, out),
    )


def quantise(sizes: Sizes) -> Problem:
    """Rows to bytes with a scale per 32. Deviation: in steps of that scale."""
    x = torch.randn(sizes.n_rows, sizes.k, generator=torch.Generator().manual_seed(sizes.seed))
    out = Activations(sizes.n_rows, sizes.k)

    def deviation() -> float:
        step = x.view(sizes.n_rows, -1, 32).abs().amax(-1, keepdim=True) / 127
        error = (stored_values(out, sizes.n_rows, sizes.k) - x).view(sizes.n_rows, -1, 32).abs()
        return float((error / step).max())

    return Problem(
        prepare=[],
        ops=[("quantise", structs.Quantise(x=x.data_ptr(), to=out.struct))],
        step=structs.Step(n_tokens=sizes.n_rows),
        n_bytes=4 * x.numel() + n_bytes_of(sizes.n_rows, sizes.k, as_floats=False),
        flops=2 * x.numel(),
        deviation=deviation,
        keep=(x, out),
    )


def embed(type_name: str, sizes: Sizes) -> Problem:
    """Rows of a table of `n`. Deviation: relative to the value's size plus 1."""
    panels, values = packed(type_name, sizes.n, sizes.k, seed=sizes.seed)
    source = torch.Generator().manual_seed(sizes.seed)
    tokens = torch.randint(sizes.n, (sizes.n_rows,), generator=source)
    out = floats(sizes.n_rows, sizes.k)
    arguments = structs.Embed(weights=panels.weights, x=out.data_ptr(), scale=1.0)

    def deviation() -> float:
        expected = values[tokens]
        return float(((out - expected).abs() / (expected.abs() + 1)).max())

    return Problem(
        prepare=[],
        ops=[("embed", arguments)],
        step=structs.Step(n_tokens=sizes.n_rows, tokens=tokens.data_ptr()),
        n_bytes=4 * out.numel() + panels.n_bytes * sizes.n_rows // sizes.n,
        flops=2 * out.numel(),
        deviation=deviation,
        keep=(panels, tokens, out),
    )
