"""Products of quantised rows with packed weights: in any company, broken, onto a residual.

How exact they are: `test_op_cases`.
"""

from __future__ import annotations

import pytest
import torch

from octavo.bench.ops.matrices import packed
from octavo.bench.ops.problem import Sizes
from octavo.bench.ops.products import Rows
from octavo.compute.native import structs
from octavo.compute.native.buffers import floats
from octavo.compute.native.gguf_grids import GRIDS
from octavo.compute.native.library import Program, Workers
from octavo.compute.native.panels import Panels


def rows_of(workers: Workers, n: int, k: int) -> Rows:
    """Random rows, quantised by the kernel."""
    rows = Rows(Sizes(n_rows=n, k=k), as_floats=False)
    quantise(workers, rows)
    return rows


def quantise(workers: Workers, rows: Rows) -> None:
    program = Program(workers.library, rows.prepare())
    workers.run(program, structs.Step(n_tokens=len(rows.x)))


def product(
    workers: Workers, panels: Panels, rows: Rows, *, onto: torch.Tensor | None = None
) -> torch.Tensor:
    n_rows, n = len(rows.x), panels.weights.n
    out = floats(n_rows, n) if onto is None else onto.clone()
    arguments = structs.Linear(
        weights=panels.weights,
        y=out.data_ptr(),
        y_stride=n,
        add=int(onto is not None),
        **rows.operands(),
    )
    workers.run(Program(workers.library, [("linear", arguments)]), structs.Step(n_tokens=n_rows))
    return out


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_row_stays_broken_and_its_neighbours_whole(workers: Workers, bad: float) -> None:
    panels, _ = packed("Q4_1", 16, 64)
    rows = rows_of(workers, 3, 64)
    whole = product(workers, panels, rows)
    rows.x[1, 40] = bad
    quantise(workers, rows)
    broken = product(workers, panels, rows)
    assert not bool(broken[1].isfinite().any())
    assert torch.equal(broken[0], whole[0])
    assert torch.equal(broken[2], whole[2])


@pytest.mark.parametrize("type_name", list(GRIDS))
def test_a_row_alone_and_among_many_gives_the_same_bits(workers: Workers, type_name: str) -> None:
    panels, _ = packed(type_name, 80, 512)
    together = rows_of(workers, 70, 512)
    found = product(workers, panels, together)
    for first, last in ((0, 1), (3, 5), (5, 9), (9, 42)):
        alone = Rows(Sizes(n_rows=last - first, k=512), as_floats=False)
        alone.x.copy_(together.x[first:last])
        quantise(workers, alone)
        assert torch.equal(product(workers, panels, alone), found[first:last])


def test_the_residual_is_added_to(workers: Workers) -> None:
    panels, _ = packed("Q4_0", 32, 64)
    rows = rows_of(workers, 5, 64)
    once = product(workers, panels, rows)
    assert torch.equal(product(workers, panels, rows, onto=torch.ones(5, 32)), once + 1)
