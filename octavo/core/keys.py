"""Block keys: a SHA-256 chain that names a whole prefix. Owns what identifies a KV block.

Everything that shapes the K and V bytes enters once, through `root`; after that a key depends on
the parent key and the block's token ids only, so one equal key proves an equal prefix. Knows no
blocks.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from typing import Protocol

Key = bytes
_SWAP = sys.byteorder == "big"


def root(namespace: bytes, *, adapter: bytes = b"", salt: bytes = b"") -> Key:
    """Root key of one cache namespace. Each part is length-prefixed, so no two triples collide."""
    digest = hashlib.sha256(b"octavo-kv-1")
    for part in (namespace, adapter, salt):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def block_key(parent: Key, tokens: Sequence[int]) -> Key:
    """sha256(parent + token ids as little-endian u32)."""
    packed = array("I", tokens)
    if _SWAP:
        packed.byteswap()
    return hashlib.sha256(parent + packed.tobytes()).digest()


def block_keys(root_key: Key, tokens: Sequence[int], block_tokens: int) -> list[Key]:
    """Keys of the full blocks of `tokens`, in order."""
    chain = TokenChain(root_key, block_tokens)
    chain.extend(tokens)
    return chain.keys


class Chain(Protocol):
    """The keys of a growing sequence. `root` None: this sequence is never cached."""

    root: Key | None
    keys: list[Key]

    def extend(self, tokens: Sequence[int]) -> None:
        """Add keys for the blocks that have become full in `tokens` (the whole sequence)."""

    def copy(self) -> Chain:
        """A chain that starts with the same keys and grows apart from this one."""


class TokenChain:
    """Keys computed from token ids, once and incrementally."""

    __slots__ = ("_block", "keys", "root")

    def __init__(self, root_key: Key | None, block_tokens: int) -> None:
        self.root = root_key
        self.keys: list[Key] = []
        self._block = block_tokens

    def extend(self, tokens: Sequence[int]) -> None:
        if self.root is None:
            return
        keys, block = self.keys, self._block
        parent = keys[-1] if keys else self.root
        for start in range(len(keys) * block, len(tokens) - block + 1, block):
            parent = block_key(parent, tokens[start : start + block])
            keys.append(parent)

    def copy(self) -> TokenChain:
        twin = TokenChain(self.root, self._block)
        twin.keys.extend(self.keys)
        return twin


class GivenChain:
    """Keys known beforehand (a trace's block ids): the tokens are placeholders.

    Generated blocks have no given key, so they are not cached.
    """

    __slots__ = ("keys", "root")

    def __init__(self, root_key: Key, ids: Sequence[int]) -> None:
        self.root: Key | None = root_key
        self.keys: list[Key] = []
        parent = root_key
        for given in ids:
            parent = hashlib.sha256(parent + given.to_bytes(8, "little")).digest()
            self.keys.append(parent)

    def extend(self, tokens: Sequence[int]) -> None:
        del tokens

    def copy(self) -> GivenChain:
        return self  # its keys never change
