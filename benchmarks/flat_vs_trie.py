"""Flat table of chain hashes against a trie of blocks: lookup, insertion and eviction.

The trie is a fair one: a node per block, children in a dict keyed by the block's tokens, leaves
kept in an ordered dict for eviction, so nothing is scanned.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import OrderedDict

from benchmarks.record import median_ms, write
from octavo.core.keys import block_keys

BLOCK = 16
ROOT = b"r" * 32


class Node:
    __slots__ = ("block", "children", "edge", "parent")

    def __init__(self, parent: Node | None, edge: tuple[int, ...], block: int) -> None:
        self.parent = parent
        self.edge = edge
        self.block = block
        self.children: dict[tuple[int, ...], Node] = {}


class Trie:
    def __init__(self) -> None:
        self.root = Node(None, (), 0)
        self.leaves: OrderedDict[int, Node] = OrderedDict()

    def match(self, tokens: list[int]) -> list[int]:
        node, found = self.root, []
        for i in range(0, len(tokens) - BLOCK + 1, BLOCK):
            child = node.children.get(tuple(tokens[i : i + BLOCK]))
            if child is None:
                break
            found.append(child.block)
            node = child
        return found

    def insert(self, tokens: list[int], first_block: int) -> None:
        node = self.root
        for n, i in enumerate(range(0, len(tokens) - BLOCK + 1, BLOCK)):
            edge = tuple(tokens[i : i + BLOCK])
            child = node.children.get(edge)
            if child is None:
                child = node.children[edge] = Node(node, edge, first_block + n)
                self.leaves.pop(id(node), None)
                self.leaves[id(child)] = child
            node = child

    def evict(self) -> None:
        _, leaf = self.leaves.popitem(last=False)
        assert leaf.parent is not None
        del leaf.parent.children[leaf.edge]
        if not leaf.parent.children and leaf.parent.parent is not None:
            self.leaves[id(leaf.parent)] = leaf.parent
            self.leaves.move_to_end(id(leaf.parent), last=False)


class Flat:
    """The index as the pool keeps it: key to block, plus the order of last use."""

    def __init__(self) -> None:
        self.index: dict[bytes, int] = {}
        self.cached: OrderedDict[int, bytes] = OrderedDict()

    def match(self, keys: list[bytes]) -> list[int]:
        index = self.index
        top = bisect_left(keys, True, key=lambda key: key not in index)
        return [index[key] for key in keys[:top]]

    def insert(self, keys: list[bytes], first_block: int) -> None:
        for n, key in enumerate(keys):
            self.index[key] = first_block + n
        for n in reversed(range(len(keys))):
            self.cached[first_block + n] = keys[n]

    def evict(self) -> None:
        _, key = self.cached.popitem(last=False)
        del self.index[key]


def measure(n_tokens: int, rnd: random.Random) -> dict[str, float]:
    """Figures in milliseconds for prompts of `n_tokens`, fifty of them in the index."""
    prompts = [[rnd.randrange(50_000) for _ in range(n_tokens)] for _ in range(50)]
    keys = [block_keys(ROOT, prompt, BLOCK) for prompt in prompts]
    n_blocks = n_tokens // BLOCK
    trie, flat = Trie(), Flat()
    for i in range(50):
        trie.insert(prompts[i], i * n_blocks)
        flat.insert(keys[i], i * n_blocks)
    expected = [7 * n_blocks + i for i in range(n_blocks)]
    assert trie.match(prompts[7]) == flat.match(keys[7]) == expected
    unknown = [rnd.randrange(50_000) for _ in range(n_tokens)]
    unknown_keys = block_keys(ROOT, unknown, BLOCK)
    assert trie.match(unknown) == flat.match(unknown_keys) == []
    return {
        "hash the prompt, once per request": median_ms(lambda: block_keys(ROOT, prompts[0], BLOCK)),
        "match all of it, flat": median_ms(lambda: flat.match(keys[7])),
        "match all of it, trie": median_ms(lambda: trie.match(prompts[7])),
        "prove that all of it is there, flat": median_ms(lambda: keys[7][-1] in flat.index),
        "miss, flat": median_ms(lambda: flat.match(unknown_keys)),
        "miss, trie": median_ms(lambda: trie.match(unknown)),
        "insert 50 prompts, flat": median_ms(lambda: [Flat().insert(k, 0) for k in keys]),
        "insert 50 prompts, trie": median_ms(lambda: [Trie().insert(p, 0) for p in prompts]),
        "evict 100 blocks, flat": median_ms(lambda: [flat.evict() for _ in range(100)], rounds=5),
        "evict 100 blocks, trie": median_ms(lambda: [trie.evict() for _ in range(100)], rounds=5),
    }


def main() -> None:
    rnd = random.Random(0)
    figures: dict[str, float] = {}
    for n_tokens in (2_000, 16_000):
        measured = measure(n_tokens, rnd)
        figures |= {f"{n_tokens:,} tokens: {name}, ms": ms for name, ms in measured.items()}
    write("flat_vs_trie", figures)


if __name__ == "__main__":
    main()
