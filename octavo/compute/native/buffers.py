"""Memory that ops write and read within a step: allocated once, sized for the largest step."""

from __future__ import annotations

import torch

from octavo.compute.native.structs import Quantised

TILE_ROWS = 8


def floats(*shape: int) -> torch.Tensor:
    """Float32, zero: rows that no op has written yet are finite."""
    return torch.zeros(shape, dtype=torch.float32)


class Activations:
    """Quantised rows [n_rows, k], `k` a multiple of 32. `struct` points into this object."""

    def __init__(self, n_rows: int, k: int) -> None:
        assert k % 32 == 0
        rows = -(-n_rows // TILE_ROWS) * TILE_ROWS
        self.q = torch.zeros(rows * k, dtype=torch.int8)
        self.scale = torch.zeros(rows * k // 32, dtype=torch.float32)
        self.moment = torch.zeros(rows * k // 32, dtype=torch.float32)
        self.sum32 = torch.zeros(rows * k // 32, dtype=torch.int32)
        self.sum16 = torch.zeros(rows * k // 16, dtype=torch.int32)
        self.struct = Quantised(
            q=self.q.data_ptr(),
            scale=self.scale.data_ptr(),
            moment=self.moment.data_ptr(),
            sum32=self.sum32.data_ptr(),
            sum16=self.sum16.data_ptr(),
            k=k,
        )
