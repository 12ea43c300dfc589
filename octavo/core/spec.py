"""Sizes of the KV cache: which layers hold K and V, for which positions, in how many bytes.

The one object from which engine, planner and simulator take sizes. Knows no model names and no
block ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# K and V as bytes: int8, or fp8 in its e4m3 form, with one float32 scale per token and head.
SCALED_DTYPES = ("int8", "fp8")
SCALE_BYTES = 4


class Kind(Protocol):
    """Which positions a layer reads. `closed`: a hit needs every block of the prefix."""

    @property
    def closed(self) -> bool: ...

    def first_live(self, restart: int) -> int:
        """Lowest position that a query at `restart` or later still reads."""

    def peak(self, n_tokens: int, step_tokens: int) -> int:
        """Most positions held at once by `n_tokens` that are computed `step_tokens` at a time."""


@dataclass(frozen=True, slots=True)
class Full:
    """Every query reads the whole prefix."""

    @property
    def closed(self) -> bool:
        return True

    def first_live(self, restart: int) -> int:
        del restart
        return 0

    def peak(self, n_tokens: int, step_tokens: int) -> int:
        del step_tokens
        return n_tokens


@dataclass(frozen=True, slots=True)
class Sliding:
    """A query at position p reads positions (p - window, p]."""

    window: int

    @property
    def closed(self) -> bool:
        return False

    def first_live(self, restart: int) -> int:
        return max(0, restart - self.window + 1)

    def peak(self, n_tokens: int, step_tokens: int) -> int:
        return min(n_tokens, self.window + step_tokens - 1)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one KV geometry and therefore one block table."""

    kind: Kind
    layers: tuple[int, ...]
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def head_token_bytes(self) -> int:
        """One head's K or V of one token: head_dim elements, and their scale if they have one."""
        if self.dtype in SCALED_DTYPES:
            return self.head_dim + SCALE_BYTES
        return self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def bytes_per_token(self) -> int:
        """2 (K and V) · layers · kv_heads · bytes of one head's token."""
        return 2 * len(self.layers) * self.kv_heads * self.head_token_bytes


@dataclass(frozen=True, slots=True)
class KVSpec:
    """All groups of a model and the block size in tokens."""

    groups: tuple[Group, ...]
    block_tokens: int = 16

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more token costs while every group still holds it."""
        return sum(group.bytes_per_token for group in self.groups)

    @property
    def widest(self) -> Group:
        """The group of most bytes: block ids are fungible between groups, so it sets their size."""
        return max(self.groups, key=lambda group: group.bytes_per_token)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block id."""
        return self.widest.bytes_per_token * self.block_tokens

    def blocks(self, n_tokens: int) -> int:
        """Blocks that cover `n_tokens` in one group."""
        return -(-n_tokens // self.block_tokens)

    def tokens_held(self, n_blocks: int) -> int:
        """Tokens that `n_blocks` ids hold in every group at once: no window has left any yet."""
        return n_blocks // len(self.groups) * self.block_tokens

    def blocks_at_peak(self, n_tokens: int, step_tokens: int) -> int:
        """Most block ids that a sequence of `n_tokens` holds at once, over all groups."""
        return sum(self.group_peak(group.kind, n_tokens, step_tokens) for group in self.groups)

    def group_peak(self, kind: Kind, n_tokens: int, step_tokens: int) -> int:
        """As `blocks_at_peak` for one group; a window that starts inside a block costs one more."""
        whole = self.blocks(n_tokens)
        if kind.closed:
            return whole
        return min(whole, self.blocks(kind.peak(n_tokens, step_tokens)) + 1)
