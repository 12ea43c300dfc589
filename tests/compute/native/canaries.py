"""Mistakes made on purpose, for the sanitizers to find: a run of these must not end well.

The kernels are right here and the caller is wrong, so nothing has to be broken in them.
"""

from __future__ import annotations

import sys
import threading

import torch

from octavo.compute.native import structs
from octavo.compute.native.library import Program, Workers, load

ROWS, WIDTH = 64, 256


def copies(workers: Workers, *, into: torch.Tensor, times: int = 1) -> None:
    """`times` steps that copy ROWS rows of WIDTH floats to `into`."""
    x, order = torch.ones(ROWS, WIDTH), torch.arange(ROWS)
    gather = structs.Gather(x=x.data_ptr(), k=WIDTH)
    program = Program(workers.library, [("gather", gather)])
    step = structs.Step(n_wanted=ROWS, wanted=order.data_ptr(), out=into.data_ptr())
    for _ in range(times):
        workers.run(program, step)


def overrun() -> None:
    """A result that has no room for its last row."""
    workers = Workers(load("scalar"), 1)
    copies(workers, into=torch.empty(ROWS - 1, WIDTH))


def race() -> None:
    """Two pools write to one place at the same time."""
    into, library = torch.empty(ROWS, WIDTH), load("scalar")
    pools = [Workers(library, 2) for _ in range(2)]
    threads = [
        threading.Thread(target=copies, args=(pool,), kwargs={"into": into, "times": 200})
        for pool in pools
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    {"overrun": overrun, "race": race}[sys.argv[1]]()
