"""Every op of the table, in every format and several shapes, against its reference in float64."""

from __future__ import annotations

import pytest

from octavo.bench.ops.cases import CASES, OpCase
from octavo.bench.ops.problem import Sizes
from octavo.bench.ops.products import ACTIVATIONS, gate
from octavo.compute.native.library import Library, Workers

SHAPES = [
    Sizes(n_rows=1, n=32, context=1),
    Sizes(n_rows=3, n=64, context=127, n_heads=3, kv_heads=3, head_dim=32, seed=1),
    Sizes(n_rows=40, n=96, context=300, seed=2),
    Sizes(n_rows=300, n=32, context=20, n_heads=8, kv_heads=1, head_dim=16, seed=3),
]


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: f"{sizes.n_rows} rows")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_result_is_as_exact_as_the_table_says(
    workers: Workers, case: OpCase, sizes: Sizes
) -> None:
    problem = case.make(sizes)
    problem.run(workers)
    assert problem.deviation() <= case.tolerance


@pytest.mark.parametrize("case", [case for case in CASES if case.op == "linear"], ids=str)
@pytest.mark.parametrize(("n", "n_rows"), [(33, 3), (17, 300)])
def test_columns_need_not_fill_a_panel(workers: Workers, case: OpCase, n: int, n_rows: int) -> None:
    problem = case.make(Sizes(n_rows=n_rows, n=n))
    problem.run(workers)
    assert problem.deviation() <= case.tolerance


@pytest.mark.parametrize("case", [case for case in CASES if case.op == "gate"], ids=str)
def test_either_activation(workers: Workers, case: OpCase) -> None:
    for activation in ACTIVATIONS:
        problem = gate(case.format, Sizes(n_rows=5, n=64), activation=activation)
        problem.run(workers)
        assert problem.deviation() <= case.tolerance


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_result_that_was_not_computed_is_too_far(library: Library, case: OpCase) -> None:
    """The table's measure tells right from wrong: before the run every result is zero."""
    problem, workers = case.make(Sizes(n_rows=3)), Workers(library, 1)
    problem.ready(workers)
    workers.close()
    assert not problem.deviation() <= case.tolerance


def test_costs_grow_with_rows() -> None:
    for case in CASES:
        few, many = (case.make(Sizes(n_rows=n)) for n in (1, 4))
        assert many.flops == 4 * few.flops > 0
        assert few.n_bytes < many.n_bytes <= 4 * few.n_bytes
