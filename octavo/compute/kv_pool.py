"""The paged K and V tensor: one block of all layers is one contiguous extent.

Owns the memory and its layout. Must not know which request holds which block, nor how attention is
computed.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence

import torch

from octavo.compute.dtypes import DTYPES
from octavo.core.batch import DEVICE, Move
from octavo.core.spec import Group
from octavo.core.table import NOTHING

KEY, VALUE = 0, 1


class KVPool:
    """`tensor` is [num_blocks + 1, layers, 2, kv_heads, block_tokens, head_dim].

    `group` is the widest of the model's groups: a block id holds the layers of any one group.

    Block-major, so copying a block to another place (a fork, a tier, a peer) is one copy. Heads
    come before tokens, so one head's slots of a block are one row that a gather copies whole.
    Id 0 (`NOTHING`) exists to keep ids and rows equal; it is never written and never read.
    Every slot is finite from the start and stays so for its next owner: see `wipe`.
    """

    def __init__(
        self,
        group: Group,
        num_blocks: int,
        *,
        block_tokens: int,
        device: torch.device | str = "cpu",
    ) -> None:
        assert num_blocks >= 1
        assert block_tokens >= 1
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.layers = len(group.layers)
        self.kv_heads = group.kv_heads
        self.head_dim = group.head_dim
        shape = (num_blocks + 1, self.layers, 2, group.kv_heads, block_tokens, group.head_dim)
        self.tensor = zeros(shape, DTYPES[group.dtype], device=torch.device(device))

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    @property
    def head_rows_per_block(self) -> int:
        """Rows of `head_rows` from one block id to the next."""
        return self.layers * 2 * self.kv_heads

    def head_rows(self, layer: int, part: int) -> torch.Tensor:
        """View [rows, block_tokens · head_dim] whose row `id · head_rows_per_block + head` is one
        head's K or V (`part`) of block `id` in `layer`: row numbers serve every layer."""
        flat = self.tensor.view(-1, self.block_tokens * self.head_dim)
        return flat[(2 * layer + part) * self.kv_heads :]

    def slot_rows(self, layer: int, part: int) -> torch.Tensor:
        """As `head_rows`, split into slots: [rows, head_dim], `block_tokens` rows for each one."""
        flat = self.tensor.view(-1, self.head_dim)
        return flat[(2 * layer + part) * self.kv_heads * self.block_tokens :]

    def move(self, moves: Sequence[Move]) -> None:
        """Copy the first `n_tokens` slots of each source block, all layers, in order.

        The rest of the target is zeroed: it still holds what an earlier owner left.
        """
        for src, dst, n_tokens in moves:
            assert src.tier == DEVICE
            assert dst.tier == DEVICE
            assert src.slot != dst.slot
            self._check(src.slot)
            self._check(dst.slot)
            assert 0 < n_tokens <= self.block_tokens
            target = self.tensor[dst.slot]
            target[..., :n_tokens, :] = self.tensor[src.slot][..., :n_tokens, :]
            target[..., n_tokens:, :] = 0

    def wipe(self, blocks: Sequence[int]) -> None:
        """Zero blocks that a step begins and does not fill.

        A masked slot has weight 0, and 0 · NaN is NaN: one request's broken numbers must not reach
        the next owner of the block through slots that it has not written yet.
        """
        for block in blocks:
            self._check(block)
            self.tensor[block].zero_()

    def _check(self, block: int) -> None:
        assert NOTHING < block <= self.num_blocks


def zeros(shape: tuple[int, ...], dtype: torch.dtype, *, device: torch.device) -> torch.Tensor:
    """Zeros that, on the CPU, take memory only where they are first written.

    `torch.zeros` writes all of it: seconds, and half of the machine's memory, before the first
    token. Anonymous pages are zero without being there, and start on a page boundary.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = _pages(math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


def _pages(n_bytes: int) -> mmap.mmap:
    """Private anonymous memory, in huge pages where the system has them: fewer TLB misses.

    A shared mapping, which Python makes by default, counts as a file in memory: its huge pages are
    usually off, and a container's limit books it differently.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # not Unix, where these names do not exist
        return mmap.mmap(-1, n_bytes)
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # only slower without
            pages.madvise(advice)
    return pages
