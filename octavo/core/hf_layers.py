"""Which layers have a window, as a `config.json` states it: one rule per family.

A layer kind that is neither full nor sliding attention is refused by naming the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from octavo.core.fields import MAX_TOKENS, Fields

FULL, SLIDING = "full_attention", "sliding_attention"
MISTRAL_WINDOW_TOKENS = 4096  # what Mistral's own code takes where the field is absent
QWEN_FIRST_SLIDING = 28  # the same for Qwen's max_window_layers
Layers = tuple[int | None, tuple[int, ...]]  # window in tokens, layers that have it
Rule = Callable[[Fields, Mapping[str, Any], int], Layers]


class _Row(NamedTuple):
    """`rule` holds where there is no `layer_types`; `listed`: such a list may say otherwise."""

    rule: Rule
    listed: bool


def read_layers(fields: Fields, config: Mapping[str, Any], *, family: str, n_layers: int) -> Layers:
    """The window and the layers under it; (None, ()) where every layer reads everything."""
    row = _ROWS[family]
    window, sliding = row.rule(fields, config, n_layers)
    listed = _listed(fields, config, n_layers=n_layers)
    if listed is not None and listed != sliding:
        if not row.listed:
            kind = SLIDING if sliding else FULL
            raise fields.error("layer_types", f'may only hold "{kind}" in this architecture')
        sliding = listed
    if sliding and window is None:
        raise fields.error("sliding_window", "is missing, and some layers have a window")
    return (window, sliding) if sliding else (None, ())


def _listed(fields: Fields, config: Mapping[str, Any], *, n_layers: int) -> tuple[int, ...] | None:
    """The sliding layers of `layer_types`, if there is such a list."""
    kinds = config.get("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != n_layers:
        raise fields.error("layer_types", f"must list the kind of each of {n_layers} layers")
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            shown = f"{kind[:40]!a}" if isinstance(kind, str) else "no text"
            raise fields.error(
                "layer_types", f'may only hold "{FULL}" and "{SLIDING}"; it has {shown}'
            )
    return tuple(layer for layer, kind in enumerate(kinds) if kind == SLIDING)


def _none(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    del config, n_layers
    fields.absent("sliding_window", "layers of this architecture have no window")
    return None, ()


def _every(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    """One window for all layers; null means none."""
    del config
    window = _window(fields)
    return window, tuple(range(n_layers)) if window else ()


def _mistral(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    if "sliding_window" not in config:
        return MISTRAL_WINDOW_TOKENS, tuple(range(n_layers))
    return _every(fields, config, n_layers)


def _upper(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    """Qwen: where `use_sliding_window`, the layers from `max_window_layers` on."""
    del config
    if not fields.flag("use_sliding_window", False):
        return None, ()
    first = fields.count("max_window_layers", QWEN_FIRST_SLIDING, limit=4096)
    return _window(fields), tuple(range(first, n_layers))


def _gemma2(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    del config
    return _window(fields), every_nth_full(2, n_layers)


def _gemma3(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Layers:
    del config
    period = fields.size("sliding_window_pattern", 6, limit=4096)
    return _window(fields), every_nth_full(period, n_layers)


def every_nth_full(period: int, n_layers: int) -> tuple[int, ...]:
    """The sliding layers where each `period`-th one is full."""
    return tuple(layer for layer in range(n_layers) if (layer + 1) % period)


def _window(fields: Fields) -> int | None:
    if not fields.has("sliding_window"):
        return None
    return fields.size("sliding_window", limit=MAX_TOKENS)


_ROWS: Mapping[str, _Row] = MappingProxyType(
    {
        "llama": _Row(_none, listed=False),
        "mistral": _Row(_mistral, listed=False),
        "qwen2": _Row(_upper, listed=True),
        "qwen3": _Row(_upper, listed=True),
        "phi3": _Row(_every, listed=False),
        "gemma2": _Row(_gemma2, listed=True),
        "gemma3": _Row(_gemma3, listed=True),
    }
)
