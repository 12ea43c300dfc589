"""Block keys: equal exactly for equal prefixes of one namespace."""

from __future__ import annotations

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.keys import GivenChain, TokenChain, block_keys, root

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=60)


def test_a_key_is_sha256_of_parent_and_little_endian_ids() -> None:
    top = root(b"model")
    first, second = block_keys(top, [1, 2, 3, 4, 5], 2)
    assert first == hashlib.sha256(top + struct.pack("<2I", 1, 2)).digest()
    assert second == hashlib.sha256(first + struct.pack("<2I", 3, 4)).digest()


@given(TOKENS, st.integers(1, 9), st.lists(st.integers(0, 60), max_size=5))
def test_incremental_equals_whole(tokens: list[int], block: int, cuts: list[int]) -> None:
    chain = TokenChain(b"r" * 32, block)
    for cut in sorted(cuts):
        chain.extend(tokens[:cut])
    chain.extend(tokens)
    assert chain.keys == block_keys(b"r" * 32, tokens, block)
    assert len(chain.keys) == len(tokens) // block


@given(TOKENS, TOKENS)
def test_keys_agree_exactly_on_the_common_prefix(a: list[int], b: list[int]) -> None:
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    pairs = zip(block_keys(b"r", a, 4), block_keys(b"r", b, 4), strict=False)
    assert [x == y for x, y in pairs] == [
        (i + 1) * 4 <= common for i in range(min(len(a), len(b)) // 4)
    ]


def test_every_part_of_a_root_counts_and_parts_do_not_run_together() -> None:
    roots = {
        root(b"ab"),
        root(b"a", adapter=b"b"),
        root(b"a", salt=b"b"),
        root(b"", adapter=b"a", salt=b"b"),
        root(b"ab", adapter=b""),
        root(b"a", adapter=b"b", salt=b""),
    }
    assert len(roots) == 4


def test_no_root_no_keys() -> None:
    chain = TokenChain(None, 4)
    chain.extend(range(100))
    assert chain.keys == []


def test_given_ids_chain_and_never_grow() -> None:
    a, b = GivenChain(b"r", [1, 2, 3]), GivenChain(b"r", [1, 2, 4])
    assert a.keys[:2] == b.keys[:2]
    assert a.keys[2] != b.keys[2]
    a.extend(range(1000))
    assert len(a.keys) == 3
