"""The pool's layout and its two ways of changing blocks outside attention."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest
import torch

from octavo.compute.kv_pool import KEY, VALUE, KVPool
from octavo.core.batch import DEVICE, Move, Place
from octavo.core.spec import Full, Group, KVSpec

GROUP = Group(Full(), (0, 1, 2), 2, 4, "float32")


def moved(src: int, dst: int, n_tokens: int) -> Move:
    return Move(Place(DEVICE, src), Place(DEVICE, dst), n_tokens)


@pytest.fixture
def pool() -> KVPool:
    pool = KVPool(GROUP, 5, block_tokens=8)
    pool.tensor.copy_(torch.arange(pool.tensor.numel()).view(pool.tensor.shape))
    return pool


def test_a_block_of_all_layers_is_one_extent_of_the_size_the_spec_says(pool: KVPool) -> None:
    block = pool.tensor[3]
    assert block.is_contiguous()
    assert block.numel() * block.element_size() == KVSpec((GROUP,), 8).block_bytes
    assert pool.tensor.shape == (6, 3, 2, 2, 8, 4)


def test_it_starts_finite() -> None:
    assert not KVPool(GROUP, 5, block_tokens=8).tensor.any()


def test_rows_name_the_same_memory_for_every_layer(pool: KVPool) -> None:
    for layer in range(3):
        for part in (KEY, VALUE):
            for block, head in ((1, 0), (4, 1), (5, 1)):
                row = block * pool.head_rows_per_block + head
                wanted = pool.tensor[block, layer, part, head]
                assert torch.equal(pool.head_rows(layer, part)[row], wanted.flatten())
                slots = pool.slot_rows(layer, part)[row * 8 : row * 8 + 8]
                assert torch.equal(slots, wanted)


def test_moves_copy_the_first_tokens_in_order_and_clear_the_rest(pool: KVPool) -> None:
    before = pool.tensor.clone()
    pool.move([moved(1, 2, 3), moved(2, 4, 2), moved(5, 3, 8)])
    assert torch.equal(pool.tensor[2][..., :3, :], before[1][..., :3, :])
    assert not pool.tensor[2][..., 3:, :].any()
    assert torch.equal(pool.tensor[4][..., :2, :], before[1][..., :2, :])
    assert not pool.tensor[4][..., 2:, :].any()
    assert torch.equal(pool.tensor[3], before[5])
    assert torch.equal(pool.tensor[[0, 1, 5]], before[[0, 1, 5]])


def test_wipe_clears_those_blocks_only(pool: KVPool) -> None:
    before = pool.tensor.clone()
    pool.wipe([2, 5])
    assert not pool.tensor[[2, 5]].any()
    assert torch.equal(pool.tensor[[0, 1, 3, 4]], before[[0, 1, 3, 4]])


@pytest.mark.parametrize("move", [moved(0, 1, 1), moved(1, 0, 1), moved(1, 6, 1), moved(1, 2, 9)])
def test_a_move_outside_the_pool_is_our_bug(pool: KVPool, move: Move) -> None:
    before = pool.tensor.clone()
    with pytest.raises(AssertionError):
        pool.move([move])
    assert torch.equal(pool.tensor, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory of Linux")
def test_a_pool_takes_memory_only_where_it_is_written() -> None:
    """A pool of half the machine must not cost its size before the first token."""
    group = Group(Full(), (0,), 4, 64, "float32")
    before = _resident_bytes()
    pool = KVPool(group, 1 << 16, block_tokens=16)
    assert pool.tensor.numel() * 4 > 2 << 30
    assert not pool.tensor[-1].any()
    assert _resident_bytes() - before < 256 << 20


def _mapping_of(pool: KVPool) -> list[str]:
    """The lines that Linux shows of the mapping that holds the pool."""
    address = pool.tensor.data_ptr()
    found: list[str] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if head is not None:
            if found:
                break
            inside = int(head[1], 16) <= address < int(head[2], 16)
        if inside:
            found.append(line)
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads the mappings of Linux")
def test_the_memory_is_private_and_in_huge_pages_where_there_are_any() -> None:
    pool = KVPool(Group(Full(), (0,), 4, 64, "float32"), 1 << 12, block_tokens=16)
    lines = _mapping_of(pool)
    assert lines[0].split()[1] == "rw-p"
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        flags = next(line for line in lines if line.startswith("VmFlags:"))
        assert "hg" in flags.split()


def test_a_system_that_takes_no_advice_still_gives_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmap.MADV_HUGEPAGE", 9999, raising=False)
    assert not KVPool(GROUP, 5, block_tokens=8).tensor.any()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
