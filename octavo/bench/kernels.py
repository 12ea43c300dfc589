"""`octavo bench kernels`: each op alone, its time beside the least that this machine allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.ceilings import Ceilings, op_seconds
from octavo.bench.ops.cases import CASES, OPS, OpCase
from octavo.bench.ops.problem import Sizes
from octavo.bench.result import Result, percent, shown
from octavo.compute.native.library import NotBuilt, Workers, load
from octavo.core.errors import ConfigError
from octavo.drawing.figures import Bars, Table

DEFAULT_FORMATS = ("Q4_1", "Q8_0", "BF16", "bfloat16", "int8")
FORMATS = tuple(dict.fromkeys(case.format for case in CASES if case.format))
GROUP = 256  # columns of weights come in blocks of at most so many
HEAD_DIM = 64
MOST_BYTES = 1 << 32  # of one problem
_KINDS = {
    "floats": "float32 multiply-adds",
    "bytes4": "multiply-adds of 4-bit and 8-bit integers",
    "bytes8": "multiply-adds of 8-bit integers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """`hidden_size` values go into each product and `intermediate_size` come out."""

    ops: Sequence[str] = OPS
    formats: Sequence[str] = DEFAULT_FORMATS
    rows: Sequence[int] = (1, 64)
    hidden_size: int = 1024
    intermediate_size: int = 3072
    context: int = 1024
    threads: int
    min_seconds: float = 0.2

    def check(self) -> None:
        """Raises ConfigError for what is unknown, does not fit the kernels or is too large."""
        for field, given, known in (("ops", self.ops, OPS), ("formats", self.formats, FORMATS)):
            unknown = [name for name in given if name not in known]
            if unknown or not given:
                raise ConfigError(
                    f"{field} must be of {', '.join(known)}; got {','.join(unknown)[:40]!a}",
                    param=field,
                )
        for field in ("hidden_size", "intermediate_size"):
            if getattr(self, field) % GROUP:
                raise ConfigError(f"{field} must be a multiple of {GROUP}", param=field)
        kv_values = 2 * self.context * self.hidden_size
        most = 4 * max(self.rows) * max(kv_values, 2 * self.intermediate_size)
        if max(most, 8 * self.hidden_size * self.intermediate_size) > MOST_BYTES:
            raise ConfigError(
                f"a problem of this size takes more than {MOST_BYTES:,} B; lower rows, context, "
                "hidden_size or intermediate_size",
                param="rows",
            )

    def sizes(self, n_rows: int) -> Sizes:
        heads = self.hidden_size // HEAD_DIM
        return Sizes(
            n_rows=n_rows,
            k=self.hidden_size,
            n=self.intermediate_size,
            context=self.context,
            n_heads=heads,
            kv_heads=heads // 4,
            head_dim=HEAD_DIM,
        )

    def cases(self) -> list[OpCase]:
        return [
            case
            for case in CASES
            if case.op in self.ops and (not case.format or case.format in self.formats)
        ]

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case with so many rows. `bound`: which ceiling it is nearer to."""

    case: OpCase
    n_rows: int
    seconds: float
    n_bytes: int
    flops: int
    least_seconds: float
    bound: str

    @property
    def share(self) -> float:
        """Of the ceiling: the least possible time over the measured."""
        return self.least_seconds / self.seconds

    def figures(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "bytes": self.n_bytes,
            "flops": self.flops,
            "bytes_per_second": self.n_bytes / self.seconds,
            "flops_per_second": self.flops / self.seconds,
            "ceiling": self.bound,
            "share_of_ceiling": self.share,
        }


def kernels(settings: KernelSettings) -> Result:
    """Raises ConfigError if there are no kernels here, and for a result that is not right: how
    fast it came would mean nothing."""
    settings.check()
    try:
        library = load()
    except NotBuilt as error:
        raise ConfigError(f"there is nothing to measure: {error}") from None
    workers = Workers(library, settings.threads)
    ceilings = Ceilings(workers, min_seconds=settings.min_seconds)
    found = [
        measured(case, settings.sizes(n_rows), workers, ceilings, settings.min_seconds)
        for case in settings.cases()
        for n_rows in settings.rows
    ]
    workers.close()
    return Result(
        name="kernels",
        settings={**settings.values(), "isa": library.isa},
        figures={
            "read_bytes_per_second": {str(k): v for k, v in ceilings.bandwidths.items()},
            "flops_per_second": ceilings.rates,
            "ops": {f"{one.case}, {one.n_rows} rows": one.figures() for one in found},
        },
        tables=(_ceiling_table(ceilings), _op_table(found)),
        plots=(
            Bars(
                title="Share of the ceiling",
                unit="%",
                bars=[(f"{one.case}, {one.n_rows}", 100 * one.share) for one in found],
            ),
        ),
    )


def measured(
    case: OpCase, sizes: Sizes, workers: Workers, ceilings: Ceilings, min_seconds: float
) -> Measured:
    """One case, checked first."""
    problem = case.make(sizes)
    problem.run(workers)
    if not problem.deviation() <= case.tolerance:
        raise ConfigError(f"the kernel for {case} computes something else on this machine")
    seconds = op_seconds(
        workers,
        lambda times: problem.program(workers.library, times=times),
        step=problem.step,
        min_seconds=min_seconds,
    )
    moving = problem.n_bytes / ceilings.bandwidth(problem.n_bytes)
    counting = problem.flops / ceilings.rate(case.arithmetic)
    return Measured(
        case=case,
        n_rows=sizes.n_rows,
        seconds=seconds,
        n_bytes=problem.n_bytes,
        flops=problem.flops,
        least_seconds=max(moving, counting),
        bound="bandwidth" if moving >= counting else "arithmetic",
    )


def _ceiling_table(ceilings: Ceilings) -> Table:
    rows = [
        (f"reading {size // 1024:,} KiB", f"{rate / 1e9:.1f} GB/s")
        for size, rate in ceilings.bandwidths.items()
    ]
    rows += [(_KINDS[kind], f"{rate / 1e9:,.0f} GFLOP/s") for kind, rate in ceilings.rates.items()]
    return Table("What this machine can do at most", ("", ""), tuple(rows))


def _op_table(found: Sequence[Measured]) -> Table:
    rows = tuple(
        (
            str(one.case),
            shown(one.n_rows),
            shown(1e6 * one.seconds, 1),
            shown(one.n_bytes / one.seconds / 1e9, 1),
            shown(one.flops / one.seconds / 1e9, 1),
            percent(one.share),
            one.bound,
        )
        for one in found
    )
    columns = ("", "rows", "µs", "GB/s", "GFLOP/s", "of ceiling", "which is")
    return Table("Each op alone, all threads", columns, rows)
