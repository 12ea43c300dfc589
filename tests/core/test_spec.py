"""KV sizes, to the byte."""

from __future__ import annotations

import pytest

from octavo.core.spec import Full, Group, KVSpec, Sliding

KIB = 1024


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "per_token"),
    [
        (80, 8, 128, 327_680),  # Llama 3.1 70B: 320 KiB
        (80, 64, 128, 2_621_440),  # the same without grouped-query attention
        (36, 8, 128, 144 * KIB),  # Qwen3-8B
        (94, 4, 128, 188 * KIB),  # Qwen3-235B-A22B
        (62, 8, 128, 248 * KIB),  # MiniMax M2.5
        (30, 3, 64, 23_040),  # SmolLM2-135M
    ],
)
def test_bytes_per_token_in_bf16(layers: int, kv_heads: int, head_dim: int, per_token: int) -> None:
    group = Group(Full(), tuple(range(layers)), kv_heads, head_dim, "bfloat16")
    spec = KVSpec((group,), 16)
    assert spec.bytes_per_token == per_token
    assert spec.block_bytes == 16 * per_token


def test_most_slots_that_one_70b_request_can_lose() -> None:
    per_token = 327_680
    assert 15 * per_token / KIB**2 == pytest.approx(4.7, abs=0.05)
    assert 255 * per_token / KIB**2 == pytest.approx(79.7, abs=0.05)


def test_blocks_at_peak_counts_a_window_once() -> None:
    full, sliding = (Group(kind, (0,), 1, 1, "float32") for kind in (Full(), Sliding(64)))
    spec = KVSpec((full, sliding), 16)
    assert spec.blocks_at_peak(1000, 32) == 63 + (95 + 15) // 16 + 1
    assert spec.blocks_at_peak(20, 32) == 2 + 2


def test_the_widest_group_sets_the_bytes_of_a_block() -> None:
    wide, narrow = (Group(Full(), layers, 2, 8, "float32") for layers in ((0, 1, 2), (3,)))
    spec = KVSpec((narrow, wide), 16)
    assert spec.widest is wide
    assert spec.bytes_per_token == 4 * 128
    assert spec.block_bytes == 16 * 3 * 128
    assert spec.tokens_held(101) == 50 * 16


def test_a_window_reads_itself_and_what_is_just_before() -> None:
    assert Sliding(1).first_live(10) == 10
    assert Sliding(4).first_live(10) == 7
    assert Sliding(4).first_live(2) == 0
    assert Full().first_live(10) == 0
