"""Weight matrices in the form that the kernels read: panels of 16 output columns.

Owns the layout that native/weights.h describes. Knows no file formats: a `Grid` is what readers
make of theirs, exact to the bit.
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
        """Grids that agree in this can be stacked."""
        return self.bits, self.group, self.zero, self.minimum is None, self.scale.dtype

    def halves(self) -> tuple[Grid, Grid]:
        """The first and the second half of the rows."""
        n = len(self.stored) // 2
        minimum = (None, None) if self.minimum is None else (self.minimum[:n], self.minimum[n:])
        first = replace(self, stored=self.stored[:n], scale=self.scale[:n], minimum=minimum[0])
        second = replace(self, stored=self.stored[n:], scale=self.scale[n:], minimum=minimum[1])
        return first, second


def stack(grids: Sequence[Grid]) -> Grid:
    """Grids of one format and width, one below the other."""
    first = grids[0]
    assert all(grid.format == first.format for grid in grids)
    minimum = None
    if first.minimum is not None:
        minimum = torch.cat([grid.minimum for grid in grids if grid.minimum is not None])
    return replace(
        first,
        stored=torch.cat([grid.stored for grid in grids]),
        scale=torch.cat([grid.scale for grid in grids]),
        minimum=minimum,
    )


def interleave(gate: Grid, up: Grid) -> Grid:
    """Rows in turns of 32: gate 0 to 31, up 0 to 31, gate 32 …, as the fused gate wants them."""

    def turns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        halves = (each.view(-1, 2 * LANES, *each.shape[1:]) for each in (a, b))
        return torch.stack(tuple(halves), dim=1).reshape(2 * len(a), *a.shape[1:])

    assert gate.format == up.format
    minimum = None
    if gate.minimum is not None and up.minimum is not None:
        minimum = turns(gate.minimum, up.minimum)
    return replace(
        gate,
        stored=turns(gate.stored, up.stored),
        scale=turns(gate.scale, up.scale),
        minimum=minimum,
    )


@dataclass(frozen=True, slots=True)
class Panels:
    """A packed matrix: `weights` points into `memory`, which must outlive every use."""

    memory: torch.Tensor
    weights: Weights

    @property
    def n_bytes(self) -> int:
        return self.memory.numel() - PREFETCHED_BYTES


def pack(grid: Grid) -> Panels:
    """Lay `grid` out in panels; missing columns of the last one are zeros."""
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
