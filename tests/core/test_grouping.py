"""Groups of equal size: every layer once, and little waste for the geometries that exist."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.grouping import SLACK, group_size, groups_of
from octavo.core.spec import Full, Group, KVSpec, Sliding


def groups(
    n_layers: int, sliding: list[int], *, window: int = 1024, max_tokens: int = 131072
) -> tuple[Group, ...]:
    return groups_of(
        n_layers,
        sliding,
        window=window,
        max_tokens=max_tokens,
        kv_heads=4,
        head_dim=256,
        dtype="bfloat16",
    )


def every_nth_full(n_layers: int, period: int) -> list[int]:
    return [layer for layer in range(n_layers) if (layer + 1) % period]


def shape(found: tuple[Group, ...]) -> list[tuple[str, int]]:
    return [(type(group.kind).__name__, len(group.layers)) for group in found]


def test_layers_of_one_kind_are_one_group() -> None:
    assert shape(groups(5, [])) == [("Full", 5)]
    assert shape(groups(5, list(range(5)))) == [("Sliding", 5)]


def test_a_window_that_nothing_leaves_is_none() -> None:
    assert shape(groups(6, [1, 2], window=4096, max_tokens=4096)) == [("Full", 6)]


# Gemma's published geometries: layers, period, window, positions -> groups of how many layers.
GEMMA = [
    (26, 2, 4096, 8192, 1, 1, 13),  # Gemma 2 2B
    (42, 2, 4096, 8192, 1, 1, 21),  # 9B
    (46, 2, 4096, 8192, 1, 1, 23),  # 27B
    (18, 6, 512, 32768, 1, 5, 3),  # Gemma 3 270M
    (26, 6, 512, 32768, 1, 6, 4),  # 1B: the last group has 2 of 4 layers
    (34, 6, 1024, 131072, 1, 6, 5),  # 4B: the last group has 4 of 5
    (48, 6, 1024, 131072, 1, 5, 8),  # 12B
    (62, 6, 1024, 131072, 1, 6, 10),  # 27B: the last group has 2 of 10
]


@pytest.mark.parametrize(
    ("layers", "period", "window", "positions", "n_full", "n_sliding", "size"), GEMMA
)
def test_groups_of_gemma(
    layers: int, period: int, window: int, positions: int, n_full: int, n_sliding: int, size: int
) -> None:
    sliding = every_nth_full(layers, period)
    found = groups(layers, sliding, window=window, max_tokens=positions)
    kinds = [type(group.kind) for group in found]
    assert (kinds.count(Full), kinds.count(Sliding)) == (n_full, n_sliding)
    assert max(len(group.layers) for group in found) == size


def test_bytes_of_gemma_3_12b() -> None:
    """As docs/decisions/005 says: 48 layers, 8 KV heads of 256, bfloat16."""
    found = groups_of(
        48,
        every_nth_full(48, 6),
        window=1024,
        max_tokens=131072,
        kv_heads=8,
        head_dim=256,
        dtype="bfloat16",
    )
    spec = KVSpec(found, 16)
    assert spec.block_bytes == 2 * 8 * 8 * 256 * 2 * 16 == 1 << 20
    assert spec.bytes_per_token == 48 * 8192
    # 32,768 tokens in chunks of 2,048: 2,048 blocks of the full group, 193 of each sliding one.
    assert spec.blocks_at_peak(32768, 2048) == 2048 + 5 * 193


@given(st.data())
def test_every_layer_is_in_one_group_and_the_cost_is_near_the_least(data: st.DataObject) -> None:
    n_layers = data.draw(st.integers(1, 40))
    sliding = sorted(data.draw(st.sets(st.integers(0, n_layers - 1))))
    window = data.draw(st.integers(1, 5000))
    found = groups(n_layers, sliding, window=window, max_tokens=4096)
    assert sorted(layer for group in found for layer in group.layers) == list(range(n_layers))
    for group in found:
        inside = isinstance(group.kind, Sliding)
        assert all((layer in sliding) == inside for layer in group.layers) or window >= 4096
    n_full = n_layers - len(sliding)
    if sliding and n_full and window < 4096:
        size = group_size(n_full, len(sliding), window=window, max_tokens=4096)
        cost = size * (-(-n_full // size) * 4096 + -(-len(sliding) // size) * window)
        assert cost <= (n_full * 4096 + len(sliding) * window) * (1 + SLACK)
