"""The paged K and V memory of the kernels. Owns its size and layout; native/kv_layout.h has the
arithmetic within a block.

A block of all layers is one contiguous extent. Every slot is finite from the start and stays so
for its next owner: see `wipe`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from octavo.compute.kv_pool import zeros
from octavo.compute.native import structs
from octavo.compute.native.library import Library
from octavo.core.batch import DEVICE, Move
from octavo.core.spec import Group
from octavo.core.table import NOTHING

KV_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3, "fp8": 4}
SUB_BLOCK = 16  # a block's tokens are a multiple of this


class NativeKVPool:
    """`group` is the widest of the model's groups; id 0 is never written and never read."""

    def __init__(
        self, library: Library, group: Group, num_blocks: int, *, block_tokens: int
    ) -> None:
        assert block_tokens % SUB_BLOCK == 0
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.layers = len(group.layers)
        slab_bytes = group.head_token_bytes * block_tokens
        assert slab_bytes == library.handle.octavo_kv_slab_bytes(
            KV_TYPES[group.dtype], group.head_dim, block_tokens
        )
        part_bytes = slab_bytes * group.kv_heads
        block_bytes = 2 * part_bytes * self.layers
        self.tensor = zeros((num_blocks + 1, block_bytes), torch.uint8, device=self.device)
        self.struct = structs.KVPool(
            memory=self.tensor.data_ptr(),
            block_bytes=block_bytes,
            layer_bytes=2 * part_bytes,
            part_bytes=part_bytes,
            slab_bytes=slab_bytes,
            block_tokens=block_tokens,
            kv_heads=group.kv_heads,
            head_dim=group.head_dim,
            dtype=KV_TYPES[group.dtype],
        )
        self._library = library.handle

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def move(self, moves: Sequence[Move]) -> None:
        """Copy the first `n_tokens` slots of each source block, all layers, in order, and zero the
        rest of the target."""
        for src, dst, n_tokens in moves:
            assert src.tier == DEVICE
            assert dst.tier == DEVICE
            assert src.slot != dst.slot
            self._check(src.slot)
            self._check(dst.slot)
            assert 0 < n_tokens <= self.block_tokens
            self._library.octavo_kv_copy(
                ctypes.byref(self.struct), self.layers, src.slot, dst.slot, n_tokens
            )

    def wipe(self, blocks: Sequence[int]) -> None:
        """Zero blocks that a step begins and does not fill: a masked slot has weight 0, and
        0 · NaN is NaN."""
        for block in blocks:
            self._check(block)
            self._library.octavo_kv_zero(ctypes.byref(self.struct), block)

    def read(self, layer: int, part: int, block: int) -> torch.Tensor:
        """One layer's K (0) or V (1) of a block: float32 [kv_heads, block_tokens, head_dim]."""
        self._check(block)
        shape = (self.struct.kv_heads, self.block_tokens, self.struct.head_dim)
        out = torch.empty(shape, dtype=torch.float32)
        self._library.octavo_kv_read(ctypes.byref(self.struct), layer, part, block, out.data_ptr())
        return out

    def _check(self, block: int) -> None:
        assert NOTHING < block <= self.num_blocks
