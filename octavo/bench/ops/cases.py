"""The table of ops: what each is, how far it may be from float64, and what bounds its speed.

Tests take their tolerances from here, `octavo bench kernels` what a run costs. Adding an op is
adding a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from octavo.bench.ops import attention, products, rows
from octavo.bench.ops.matrices import FORMATS, HALVES
from octavo.bench.ops.problem import Problem, Sizes
from octavo.compute.native.pool import KV_TYPES

Tolerance = Callable[[str], float]  # by the weights' format

FLOATS, BYTES4, BYTES8 = "floats", "bytes4", "bytes8"
_FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCase:
    """`op` in one `format`: of weights or of K and V, or "" where it has none.

    arithmetic  the kind of multiplications that bounds it
    tolerance   the largest deviation that is right; what it is relative to: see the problem
    """

    op: str
    format: str
    arithmetic: str
    tolerance: float
    make: Callable[[Sizes], Problem]

    def __str__(self) -> str:
        return f"{self.op} {self.format}".rstrip()


def _arithmetic(type_name: str) -> str:
    if type_name in HALVES:
        return FLOATS
    return BYTES4 if type_name in _FOUR_BITS else BYTES8


def _weights(op: str, make: Callable[[str, Sizes], Problem], tolerance: Tolerance) -> list[OpCase]:
    """A case for each format of weights."""
    return [
        OpCase(
            op=op,
            format=name,
            arithmetic=_arithmetic(name),
            tolerance=tolerance(name),
            make=partial(make, name),
        )
        for name in FORMATS
    ]


def _kv(op: str, make: Callable[[str, Sizes], Problem], tolerance: float) -> list[OpCase]:
    """A case for each dtype of K and V."""
    return [
        OpCase(
            op=op,
            format=dtype,
            arithmetic=FLOATS,
            tolerance=tolerance,
            make=partial(make, dtype),
        )
        for dtype in KV_TYPES
    ]


def _rows(op: str, make: Callable[[Sizes], Problem], tolerance: float) -> OpCase:
    return OpCase(op=op, format="", arithmetic=FLOATS, tolerance=tolerance, make=make)


CASES = (
    *_weights("linear", products.linear, lambda name: 1e-5),
    # A quantised result is off by the half step of its rounding, and a little for its inputs'.
    *_weights("gate", products.gate, lambda name: 1e-4 if name in HALVES else 0.51),
    *_weights("embed", rows.embed, lambda name: 1e-6),
    _rows("norm", rows.norm, 1e-5),
    _rows("quantise", rows.quantise, 0.5001),
    *_kv("rope_write", attention.rope_write, 1e-5),
    *_kv("attention", attention.decode, 2e-5),
)
OPS = tuple(dict.fromkeys(case.op for case in CASES))
