"""Ops around products: what enters them, in which of two forms, and the products themselves.

Weights of 4 and 8 bits are multiplied with rows of bytes, those of 16 with floats. Owns that
choice; knows nothing of layers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cached_property

import torch

from octavo.compute.native import structs
from octavo.compute.native.buffers import Activations, floats
from octavo.compute.native.panels import Panels

TOKENS, WANTED = 0, 1

Recorded = list[tuple[str, ctypes.Structure]]


class Operand:
    """Room for rows [n_rows, k] that enter products, in each form that some product asks for."""

    def __init__(self, n_rows: int, k: int) -> None:
        self._shape = n_rows, k

    @cached_property
    def quantised(self) -> structs.Quantised:
        self._activations = Activations(*self._shape)
        return self._activations.struct

    @cached_property
    def floats(self) -> torch.Tensor:
        return floats(*self._shape)


def norm(
    weight: torch.Tensor,
    *,
    x: torch.Tensor | None,
    to: Operand,
    readers: Iterable[Panels],
    eps: float,
    rows: int = TOKENS,
) -> Recorded:
    """RMSNorm of `x` (None: the step's input) into the forms that `readers` multiply with."""
    ops: Recorded = []
    for takes_floats in sorted({panels.takes_floats for panels in readers}):
        op = structs.Norm(x=pointer(x), weight=weight.data_ptr(), k=len(weight), eps=eps, rows=rows)
        if takes_floats:
            op.floats = to.floats.data_ptr()
        else:
            op.quantised = to.quantised
        ops.append(("norm", op))
    return ops


def norm_onto(
    residual: torch.Tensor, weight: torch.Tensor, *, x: torch.Tensor, eps: float
) -> Recorded:
    """residual += RMSNorm of `x`."""
    op = structs.Norm(
        x=x.data_ptr(),
        weight=weight.data_ptr(),
        residual=residual.data_ptr(),
        k=len(weight),
        eps=eps,
    )
    return [("norm", op)]


def quantise(x: Operand, *, reader: Panels) -> Recorded:
    """From floats to bytes, if `reader` wants those."""
    if reader.takes_floats:
        return []
    return [("quantise", structs.Quantise(x=x.floats.data_ptr(), to=x.quantised))]


def linear(
    panels: Panels,
    x: Operand,
    *,
    bias: int | None = None,
    y: int | None,
    y_stride: int,
    add: bool = False,
    rows: int = TOKENS,
) -> Recorded:
    """y = x · Wᵀ (+ bias), or y += that. `bias` and `y` are addresses; no `y`: the step's `out`."""
    op = structs.Linear(
        weights=panels.weights, bias=bias, y=y, y_stride=y_stride, add=int(add), rows=rows
    )
    if panels.takes_floats:
        op.floats = x.floats.data_ptr()
        return [("linear_float", op)]
    op.x = x.quantised
    return [("linear", op)]


def gate(
    panels: Panels,
    x: Operand,
    *,
    to: Operand,
    reader: Panels,
    bias: torch.Tensor | None,
    activation: int,
) -> Recorded:
    """act(x · Gᵀ) · (x · Uᵀ) into the form that `reader` multiplies with."""
    op = structs.Gate(weights=panels.weights, bias=pointer(bias), activation=activation)
    if reader.takes_floats:
        op.out_floats = to.floats.data_ptr()
    else:
        op.out = to.quantised
    if panels.takes_floats:
        op.floats = x.floats.data_ptr()
        return [("gate_float", op)]
    op.x = x.quantised
    return [("gate", op)]


def pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
