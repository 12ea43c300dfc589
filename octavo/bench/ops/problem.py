"""One op on numbers of its own: ready to be run, checked against float64, and priced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.compute.native.library import Library, Program, Workers
from octavo.compute.native.products import Recorded
from octavo.compute.native.structs import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of one problem. `n_rows` rows of `k` values; what has columns has `n` of them.

    Attention: `n_rows` requests with `context` tokens each, one new token in each; `n` and `k` are
    of no matter to it.
    """

    n_rows: int
    k: int = 256
    n: int = 256
    context: int = 300
    n_heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`prepare` runs once, then `ops` as often as one likes.

    n_bytes    read and written at least, each byte once
    flops      multiplications and additions
    deviation  after a run: how far the result is from the reference, as its case counts it
    keep       what the ops point to
    """

    prepare: Recorded
    ops: Recorded
    step: Step
    n_bytes: int
    flops: int
    deviation: Callable[[], float]
    keep: object

    def run(self, workers: Workers) -> None:
        """Both, once."""
        self.ready(workers)
        workers.run(self.program(workers.library), self.step)

    def ready(self, workers: Workers) -> None:
        if self.prepare:
            workers.run(Program(workers.library, self.prepare), self.step)

    def program(self, library: Library, *, times: int = 1) -> Program:
        """The ops, `times` times in a row."""
        return Program(library, self.ops * times, keep=self)
