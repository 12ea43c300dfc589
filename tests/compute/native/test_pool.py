"""The pool of threads: ops in order, each seeing what the one before wrote, time and again."""

from __future__ import annotations

import time

import pytest
import torch

from octavo.compute.native import structs
from octavo.compute.native.buffers import floats
from octavo.compute.native.library import Library, Program, Workers
from octavo.compute.native.panels import Floats, Panels, pack
from octavo.compute.native.products import Operand, linear, norm

WIDTH, LAYERS, MOST_ROWS = 96, 4, 48


class Chain:
    """x += W · norm(x), layer after layer, and then the rows that are wanted: a step in small."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x, self.normed = floats(MOST_ROWS, WIDTH), Operand(MOST_ROWS, WIDTH)
        self.weight = torch.rand(WIDTH) + 0.5
        self.layers = [self._layer() for _ in range(LAYERS)]
        self.start = torch.randn(MOST_ROWS, WIDTH)

    @staticmethod
    def _layer() -> Panels:
        return pack(Floats((0.1 * torch.randn(WIDTH, WIDTH)).bfloat16()))

    def record(self, library: Library) -> Program:
        ops = []
        for panels in self.layers:
            ops += norm(self.weight, x=self.x, to=self.normed, readers=[panels], eps=1e-6)
            ops += linear(panels, self.normed, y=self.x.data_ptr(), y_stride=WIDTH, add=True)
        gather = structs.Gather(x=self.x.data_ptr(), k=WIDTH)
        return Program(library, [*ops, ("gather", gather)], keep=self)

    def run(self, workers: Workers, program: Program, n_rows: int) -> torch.Tensor:
        """The last rows first: [n_rows, WIDTH]."""
        self.x[:n_rows] = self.start[:n_rows]
        wanted, out = torch.arange(n_rows).flip(0), torch.empty(n_rows, WIDTH)
        workers.run(
            program,
            structs.Step(
                n_tokens=n_rows,
                n_wanted=n_rows,
                wanted=wanted.data_ptr(),
                out=out.data_ptr(),
            ),
        )
        return out


@pytest.mark.parametrize("pause_seconds", [0.0, 0.002])
def test_many_steps_give_what_one_thread_gives(
    library: Library, workers: Workers, pause_seconds: float
) -> None:
    """`pause_seconds`: long enough for the threads to fall asleep between steps, or not."""
    chain, alone = Chain(), Workers(library, 1)
    program = chain.record(library)
    expected = {n: chain.run(alone, program, n) for n in (1, 2, 7, MOST_ROWS)}
    alone.close()
    for _ in range(6):
        for n_rows, wanted in expected.items():
            assert torch.equal(chain.run(workers, program, n_rows), wanted)
            time.sleep(pause_seconds)


def test_pools_end_whether_or_not_they_ever_ran(library: Library) -> None:
    chain = Chain()
    program = chain.record(library)
    for count in (1, 2, 4):
        Workers(library, count).close()
        workers = Workers(library, count)
        chain.run(workers, program, 3)
        workers.close()
        workers.close()
