"""Which kind each layer of a `config.json` is. Owns the ways in which configs say so.

They are tried in a fixed order and the first that is there counts. A value that is not known is
refused by naming its field: a layer that was guessed wrong makes every figure wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from octavo.core.fields import Fields
from octavo.core.hf_layers import every_nth_full

FULL: Final = "full"
SLIDING: Final = "sliding"
CHUNKED: Final = "chunked"
LINEAR: Final = "linear"  # gated DeltaNet, Kimi's delta attention or lightning: the config says
MAMBA: Final = "mamba"
CONV: Final = "conv"
NONE: Final = "none"  # MLP only

MAX_LAYERS = 4096
Kinds = tuple[str, ...]

_LAYER_TYPES = {
    "full_attention": FULL,
    "deepseek_sparse_attention": FULL,  # chooses among all tokens, so it keeps them all
    "attention": FULL,
    "global_attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": LINEAR,
    "mamba": MAMBA,
    "mamba2": MAMBA,
    "conv": CONV,
    "mlp": NONE,
    "moe": NONE,
}
_LETTERS = {"M": MAMBA, "*": FULL, "-": NONE, "E": NONE}
GEMMA_PATTERN = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}


def layer_kinds(fields: Fields, config: Mapping[str, Any], *, n_layers: int) -> tuple[Kinds, str]:
    """The kind of each layer, and the field that said so."""
    for name, read in _RULES:
        if config.get(name) is not None:
            kinds = read(fields, config, n_layers)
            if len(kinds) != n_layers:
                raise fields.error(name, f"must tell the kind of each of {n_layers} layers")
            return kinds, name
    period = GEMMA_PATTERN.get(str(config.get("model_type")))
    if period is not None:
        return _periodic(period, n_layers), "model_type"
    return _windowed(fields, config, n_layers)


def _listed(name: str, values: Mapping[Any, str]) -> Callable[..., Kinds]:
    """A list of one known value for each layer."""

    def read(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
        found = config[name]
        if not isinstance(found, list | str) or len(found) > MAX_LAYERS:
            raise fields.error(name, f"must tell the kind of each of {n_layers} layers")
        return tuple(_known(fields, name, value, values) for value in found)

    return read


def _known(fields: Fields, name: str, value: Any, values: Mapping[Any, str]) -> str:
    # True would pass for 1.
    kind = values.get(value) if isinstance(value, str) or type(value) is int else None
    if kind is None:
        shown = f"{value[:40]!a}" if isinstance(value, str) else "something else"
        known = ", ".join(str(one) for one in values)
        raise fields.error(name, f"may only hold {known}; it has {shown}")
    return kind


def _sliding_pattern(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
    if isinstance(config["sliding_window_pattern"], str):  # as "LLLG": local and global layers
        letters = config["sliding_window_pattern"][:MAX_LAYERS]
        kinds = {"L": SLIDING, "G": FULL}
        one = [_known(fields, "sliding_window_pattern", letter, kinds) for letter in letters]
        return tuple(one[i % len(one)] for i in range(n_layers)) if one else ()
    return _periodic(fields.size("sliding_window_pattern", limit=MAX_LAYERS), n_layers)


def _full_interval(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
    del config
    period = fields.size("full_attention_interval", limit=MAX_LAYERS)
    return tuple(LINEAR if kind == SLIDING else kind for kind in _periodic(period, n_layers))


def _attention_period(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
    """Jamba: attention where layer % period == offset, Mamba elsewhere."""
    del config
    period = fields.size("attn_layer_period", limit=MAX_LAYERS)
    offset = fields.count("attn_layer_offset", 0, limit=MAX_LAYERS)
    return tuple(FULL if layer % period == offset else MAMBA for layer in range(n_layers))


def _kimi(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
    """Layers are counted from 1 in both lists, which must name each once."""
    table = config["linear_attn_config"]
    if not isinstance(table, dict):
        raise fields.error("linear_attn_config", "must be an object")
    full, linear = table.get("full_attn_layers"), table.get("kda_layers")
    if not isinstance(full, list) or not isinstance(linear, list):
        raise fields.error("linear_attn_config", "must list full_attn_layers and kda_layers")
    all_layers = [*full, *linear]
    if not all(type(layer) is int for layer in all_layers) or sorted(all_layers) != list(
        range(1, n_layers + 1)
    ):
        raise fields.error("linear_attn_config", f"must name each layer from 1 to {n_layers} once")
    chosen = set(full)
    return tuple(FULL if layer in chosen else LINEAR for layer in range(1, n_layers + 1))


def _windowed(fields: Fields, config: Mapping[str, Any], n_layers: int) -> tuple[Kinds, str]:
    """No list of kinds: one window for all layers, for the upper ones, or none."""
    if config.get("attention_chunk_size") is not None:
        return _llama4(fields, config, n_layers), "no_rope_layers"
    model_type = config.get("model_type")
    # Mistral's own code takes a window where the field is absent, Qwen's none without the switch.
    has_window = fields.has("sliding_window") or (
        model_type == "mistral" and "sliding_window" not in config
    )
    is_qwen = isinstance(model_type, str) and model_type.startswith("qwen")
    if not has_window or not fields.flag("use_sliding_window", not is_qwen):
        return (FULL,) * n_layers, "no field for windows"
    first = 0
    if fields.has("max_window_layers"):
        first = fields.count("max_window_layers", limit=MAX_LAYERS)
    return tuple(SLIDING if i >= first else FULL for i in range(n_layers)), "sliding_window"


def _llama4(fields: Fields, config: Mapping[str, Any], n_layers: int) -> Kinds:
    """Layers that rotate attend within a chunk, those without rotation (0 in the list) to all."""
    listed = config.get("no_rope_layers")
    if listed:
        kinds = _listed("no_rope_layers", {1: CHUNKED, 0: FULL})(fields, config, n_layers)
        if len(kinds) != n_layers:
            raise fields.error("no_rope_layers", f"must list each of {n_layers} layers")
        return kinds
    period = fields.size("no_rope_layer_interval", 4, limit=MAX_LAYERS)
    return tuple(CHUNKED if kind == SLIDING else kind for kind in _periodic(period, n_layers))


def _periodic(period: int, n_layers: int) -> Kinds:
    sliding = set(every_nth_full(period, n_layers))
    return tuple(SLIDING if layer in sliding else FULL for layer in range(n_layers))


_RULES: tuple[tuple[str, Callable[[Fields, Mapping[str, Any], int], Kinds]], ...] = (
    ("layer_types", _listed("layer_types", _LAYER_TYPES)),
    ("sliding_window_pattern", _sliding_pattern),
    ("full_attention_interval", _full_interval),
    ("hybrid_override_pattern", _listed("hybrid_override_pattern", _LETTERS)),
    ("layers_block_type", _listed("layers_block_type", _LAYER_TYPES)),
    ("attn_layer_period", _attention_period),
    ("attn_type_list", _listed("attn_type_list", {1: FULL, 0: LINEAR})),
    ("hybrid_layer_pattern", _listed("hybrid_layer_pattern", {0: FULL, 1: SLIDING})),
    ("linear_attn_config", _kimi),
)
