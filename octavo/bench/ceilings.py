"""What this machine can do at most: read bandwidth by working set, and arithmetic by its kind.

Measured with the threads and the build that are measured otherwise, so that a share of a ceiling
means the kernel and not the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median

import torch

from octavo.compute.native import structs
from octavo.compute.native.library import Program, Workers

READ_BYTES = 16384  # native/ceiling.cpp reads in pieces of this
MOST_BYTES = 1 << 28  # larger working sets are no slower: no cache holds them
_ITEMS = 256  # of a round of multiplications
# Multiplications and additions of one vector: sixteen lanes, or 64 bytes.
_FLOPS = {"floats": 2 * 16, "bytes4": 2 * 64, "bytes8": 2 * 64}


class Ceilings:
    """Each is measured once, when it is first asked for."""

    def __init__(self, workers: Workers, *, min_seconds: float) -> None:
        self._workers = workers
        self._min_seconds = min_seconds
        self._bandwidths: dict[int, float] = {}
        self._rates: dict[str, float] = {}

    @property
    def bandwidths(self) -> dict[int, float]:
        """Bytes a second by working set in bytes, of those that were asked for."""
        return dict(sorted(self._bandwidths.items()))

    @property
    def rates(self) -> dict[str, float]:
        """Multiplications and additions a second by kind, of those that were asked for."""
        return dict(self._rates)

    def bandwidth(self, n_bytes: int) -> float:
        """Bytes a second that all threads read of `n_bytes`, rounded up to whole pieces."""
        size = min(MOST_BYTES, -(-n_bytes // READ_BYTES) * READ_BYTES)
        if size not in self._bandwidths:
            self._bandwidths[size] = size / self._seconds("read", size, n_bytes=size)
        return self._bandwidths[size]

    def rate(self, arithmetic: str) -> float:
        """Multiplications and additions a second of one kind: floats, bytes4 or bytes8."""
        if arithmetic not in self._rates:
            vectors = _ITEMS * self._workers.library.handle.octavo_ceiling_vectors()
            seconds = self._seconds(arithmetic, _ITEMS, n_bytes=READ_BYTES)
            self._rates[arithmetic] = vectors * _FLOPS[arithmetic] / seconds
        return self._rates[arithmetic]

    def _seconds(self, what: str, n: int, *, n_bytes: int) -> float:
        """Of one op. The data are ones: sums of them are no slow numbers, whatever they are read
        as."""
        data = torch.ones(n_bytes // 4)
        out = torch.empty(max(_ITEMS, n_bytes // READ_BYTES))
        op = structs.Ceiling(data=data.data_ptr(), out=out.data_ptr(), n=n)
        step = structs.Step()

        def program(times: int) -> Program:
            return Program(self._workers.library, [(f"ceiling_{what}", op)] * times)

        return op_seconds(
            self._workers, program, step=step, min_seconds=self._min_seconds, pick=min
        )


def op_seconds(
    workers: Workers,
    program: Callable[[int], Program],
    *,
    step: structs.Step,
    min_seconds: float,
    pick: Callable[[Iterable[float]], float] = median,
) -> float:
    """Time of one op, by default the median of the calls. `program` records it so many times: a
    call lasts a millisecond or more, so that calling costs nothing beside it."""
    times = 1
    while (seconds := _call_seconds(workers, program(times), step)) < 1e-3 and times < 4096:
        times *= 2
    recorded = program(times)
    calls = max(3, int(min_seconds / max(seconds, 1e-6)))
    return pick(_call_seconds(workers, recorded, step) for _ in range(calls)) / times


def _call_seconds(workers: Workers, program: Program, step: structs.Step) -> float:
    begin = time.perf_counter()
    workers.run(program, step)
    return time.perf_counter() - begin
