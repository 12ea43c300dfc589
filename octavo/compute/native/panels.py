"""Weight matrices in the form that the kernels read: panels of 16 output columns.

Owns the layout that native/weights.h describes. Knows no file formats: a `Grid` is what readers
make of theirs, exact to the bit, and `Floats` are 16-bit values as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from octavo.compute.native.structs import Weights

LANES = 16
PREFETCHED_BYTES = 4096  # kernels prefetch past the end of a panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """[n, k] values, scale · (stored - zero) + minimum, in groups of `group` along a row.

    stored    uint8 [n, k / group, group · bits / 8]; of 4 bits, byte i holds element i of the group
              in its low nibble and element i + group / 2 in its high one
    scale     float16 or float32 [n, k / group]
    minimum   as `scale`, or None
    """

    stored: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None
    bits: int
    group: int
    zero: int

    @property
    def format(self) -> tuple[object, ...]:
        """Matrices that agree in this can be stacked."""
        return self.bits, self.group, self.zero, self.minimum is None, self.scale.dtype

    def arrays(self) -> tuple[torch.Tensor, ...]:
        """All tensors, each with a row per row of the matrix."""
        numbers = (self.scale,) if self.minimum is None else (self.scale, self.minimum)
        return (self.stored, *numbers)

    def with_arrays(self, arrays: Sequence[torch.Tensor]) -> Grid:
        """The same format of other rows."""
        stored, scale, *minimum = arrays
        return replace(self, stored=stored, scale=scale, minimum=minimum[0] if minimum else None)


@dataclass(frozen=True, slots=True)
class Floats:
    """[n, k] values of 16 bits, bfloat16 or float16."""

    values: torch.Tensor

    @property
    def format(self) -> tuple[object, ...]:
        return (self.values.dtype,)

    def arrays(self) -> tuple[torch.Tensor, ...]:
        return (self.values,)

    def with_arrays(self, arrays: Sequence[torch.Tensor]) -> Floats:
        (values,) = arrays
        return Floats(values)


Matrix = Grid | Floats


def stack(matrices: Sequence[Matrix]) -> Matrix:
    """Matrices of one format and width, one below the other."""
    first = matrices[0]
    assert all(each.format == first.format for each in matrices)
    return first.with_arrays(
        [torch.cat(each) for each in zip(*(one.arrays() for one in matrices), strict=True)]
    )


def halves(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The first and the second half of the rows."""
    arrays = matrix.arrays()
    n = len(arrays[0]) // 2
    return (
        matrix.with_arrays([each[:n] for each in arrays]),
        matrix.with_arrays([each[n:] for each in arrays]),
    )


def interleave(gate: Matrix, up: Matrix) -> Matrix:
    """Rows in turns of 32: gate 0 to 31, up 0 to 31, gate 32 …, as the fused gate wants them."""

    def turns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        runs = (each.view(-1, 2 * LANES, *each.shape[1:]) for each in (a, b))
        return torch.stack(tuple(runs), dim=1).reshape(2 * len(a), *a.shape[1:])

    assert gate.format == up.format
    return gate.with_arrays([turns(a, b) for a, b in zip(gate.arrays(), up.arrays(), strict=True)])


@dataclass(frozen=True, slots=True)
class Panels:
    """A packed matrix: `weights` points into `memory`, which must outlive every use."""

    memory: torch.Tensor
    weights: Weights

    @property
    def takes_floats(self) -> bool:
        """Whether it is multiplied with floats rather than with quantised activations."""
        return bool(self.weights.bits == 16)

    @property
    def n_bytes(self) -> int:
        return self.memory.numel() - PREFETCHED_BYTES


def pack(matrix: Matrix) -> Panels:
    """Lay `matrix` out in panels; missing columns of the last one are zeros."""
    return _packed_grid(matrix) if isinstance(matrix, Grid) else _packed_floats(matrix)


def _packed_floats(floats: Floats) -> Panels:
    n, k = floats.values.shape
    panels, half = -(-n // LANES), floats.values.dtype == torch.float16
    run = 1 if half else 2  # values of one column that lie side by side
    memory = torch.empty(panels * LANES * k * 2 + PREFETCHED_BYTES, dtype=torch.uint8)
    out = memory[:-PREFETCHED_BYTES].view(torch.int16).view(panels, k // run, LANES, run)
    lanes = _padded(floats.values.contiguous().view(torch.int16), panels)
    out.copy_(lanes.view(panels, LANES, k // run, run).transpose(1, 2))
    weights = Weights(data=memory.data_ptr(), n=n, k=k, bits=16, half=int(half))
    return Panels(memory, weights)


def _packed_grid(grid: Grid) -> Panels:
    n, groups, width = grid.stored.shape
    panels = -(-n // LANES)
    numbers = [grid.scale] if grid.minimum is None else [grid.scale, grid.minimum]
    number_bytes = LANES * grid.scale.itemsize
    value_bytes = LANES * width
    group_bytes = value_bytes + number_bytes * len(numbers)
    memory = torch.empty(panels * groups * group_bytes + PREFETCHED_BYTES, dtype=torch.uint8)
    out = memory[:-PREFETCHED_BYTES].view(panels, groups, group_bytes)
    lanes = _padded(grid.stored, panels).view(panels, LANES, groups, width // 4, 4)
    values = out[:, :, :value_bytes].view(panels, groups, width // 4, LANES, 4)
    # Four bytes travel together: as one number each they are permuted several times faster.
    values.view(torch.int32)[..., 0].copy_(
        lanes.contiguous().view(torch.int32)[..., 0].permute(0, 2, 3, 1)
    )
    for place, each in enumerate(numbers):
        begin = value_bytes + place * number_bytes
        into = out[:, :, begin : begin + number_bytes].view(grid.scale.dtype)
        into.copy_(_padded(each, panels).view(panels, LANES, groups).permute(0, 2, 1))
    return Panels(memory, _weights(memory, n, groups * grid.group, grid))


def _padded(rows: torch.Tensor, panels: int) -> torch.Tensor:
    missing = panels * LANES - len(rows)
    if not missing:
        return rows
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:])))


def _weights(memory: torch.Tensor, n: int, k: int, grid: Grid) -> Weights:
    return Weights(
        data=memory.data_ptr(),
        n=n,
        k=k,
        bits=grid.bits,
        group=grid.group,
        zero=grid.zero,
        minima=int(grid.minimum is not None),
        wide=int(grid.scale.dtype == torch.float32),
    )
