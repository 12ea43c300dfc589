"""How layers are gathered into groups: equal sizes, so that any block id serves any group.

Owns the choice of the size; docs/decisions/005 has its arithmetic for real models. Knows no model
names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from octavo.core.spec import Full, Group, Kind, Sliding

SLACK = 1 / 16  # bytes worth giving up for fewer groups: each one costs tables and plans per step


def groups_of(
    n_layers: int,
    sliding: Collection[int],
    *,
    window: int | None,
    max_tokens: int,
    kv_heads: int,
    head_dim: int,
    dtype: str,
) -> tuple[Group, ...]:
    """Groups of `n_layers` layers, full ones first; those in `sliding` read `window` positions.

    `max_tokens`: length of the sequence whose bytes are to be small.
    """
    full = [layer for layer in range(n_layers) if layer not in sliding]
    if not sliding or (window is not None and window >= max_tokens):
        full = list(range(n_layers))  # a window that nothing ever leaves
        return (Group(Full(), tuple(full), kv_heads, head_dim, dtype),)
    assert window is not None
    kind = Sliding(window)
    inside = sorted(sliding)
    size = len(inside)
    if full:
        size = group_size(len(full), len(inside), window=window, max_tokens=max_tokens)
    parts: list[tuple[Kind, Sequence[int]]] = [(Full(), part) for part in _cut(full, size)]
    parts += [(kind, part) for part in _cut(inside, size)]
    return tuple(Group(kind, tuple(part), kv_heads, head_dim, dtype) for kind, part in parts)


def group_size(n_full: int, n_sliding: int, *, window: int, max_tokens: int) -> int:
    """Layers per group: the largest size whose cost is within SLACK of the least.

    The cost is what one sequence of `max_tokens` holds, in layers times tokens: a group that is not
    full of layers still takes whole blocks.
    """
    costs = {
        size: size * (-(-n_full // size) * max_tokens + -(-n_sliding // size) * window)
        for size in range(1, max(n_full, n_sliding) + 1)
    }
    limit = min(costs.values()) * (1 + SLACK)
    return max(size for size, cost in costs.items() if cost <= limit)


def _cut(layers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [layers[start : start + size] for start in range(0, len(layers), size)]
