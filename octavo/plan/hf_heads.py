"""Heads and their sizes as a `config.json` states them: the spellings, defaults and traps.

Knows no layer kinds. An absent or null field falls through to the next spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from octavo.core.fields import MAX_SIZE, Fields

MAX_HEAD_DIM = 1 << 16

# What an architecture's own code takes where its config leaves the field out.
MODEL_TYPE_DEFAULTS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "gemma": {"head_dim": 256},
        "gemma2": {"head_dim": 256, "num_key_value_heads": 4, "num_attention_heads": 8},
        "gemma3": {"head_dim": 256, "num_key_value_heads": 4, "num_attention_heads": 8},
        "gemma3_text": {"head_dim": 256, "num_key_value_heads": 4, "num_attention_heads": 8},
        "gemma3n_text": {"head_dim": 256, "num_key_value_heads": 2, "num_attention_heads": 8},
        "qwen3": {"head_dim": 128},
        "qwen3_next": {"head_dim": 256},
        "mistral": {"num_key_value_heads": 8},
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """`kv_heads`: of each layer. Dims in elements."""

    query_heads: int
    kv_heads: tuple[int, ...]
    key_dim: int
    value_dim: int


def read_heads(fields: Fields, config: Mapping[str, Any], *, n_layers: int) -> Heads:
    """The geometry of full attention."""
    defaults = MODEL_TYPE_DEFAULTS.get(str(config.get("model_type")), {})
    query_heads = _query_heads(fields, config, defaults, n_layers)
    key_dim = head_dim(fields, defaults, query_heads=query_heads)
    return Heads(
        query_heads=query_heads,
        kv_heads=_kv_heads(fields, config, defaults, n_layers=n_layers, query_heads=query_heads),
        key_dim=key_dim,
        value_dim=fields.size("v_head_dim", key_dim, limit=MAX_HEAD_DIM),
    )


def first_of(fields: Fields, *names: str) -> str | None:
    """The first of the spellings that is there."""
    return next((name for name in names if fields.has(name)), None)


def _query_heads(
    fields: Fields, config: Mapping[str, Any], defaults: Mapping[str, int], n_layers: int
) -> int:
    name = first_of(fields, "num_attention_heads", "n_head", "n_heads", "num_query_heads")
    if name is None:
        return fields.size("num_attention_heads", *_default(defaults, "num_attention_heads"))
    if isinstance(config[name], list):  # one number for each layer: the largest sets the shape
        return max(_per_layer(fields, config, name, n_layers))
    return fields.size(name)


def _kv_heads(
    fields: Fields,
    config: Mapping[str, Any],
    defaults: Mapping[str, int],
    *,
    n_layers: int,
    query_heads: int,
) -> tuple[int, ...]:
    name = first_of(fields, "num_key_value_heads", "n_head_kv", "num_kv_heads")
    if name is not None:
        if isinstance(config[name], list):
            return _per_layer(fields, config, name, n_layers)
        return (fields.size(name),) * n_layers
    if fields.flag("multi_query_attention", False):  # ChatGLM's switch and count
        return (fields.size("multi_query_group_num"),) * n_layers
    if fields.flag("multi_query", False):
        return (1,) * n_layers
    return (defaults.get("num_key_value_heads", query_heads),) * n_layers


def _per_layer(
    fields: Fields, config: Mapping[str, Any], name: str, n_layers: int
) -> tuple[int, ...]:
    """0: the layer has no attention."""
    found = config[name]
    fits = len(found) == n_layers and all(
        type(value) is int and 0 <= value <= MAX_SIZE for value in found
    )
    if not fits:
        raise fields.error(name, f"must be a number, or one for each of {n_layers} layers")
    return tuple(found)


def head_dim(fields: Fields, defaults: Mapping[str, int], *, query_heads: int) -> int:
    """Width of one head's K."""
    name = first_of(fields, "head_dim", "attention_head_dim", "kv_channels")
    if name is not None:
        return fields.size(name, limit=MAX_HEAD_DIM)
    if "head_dim" in defaults:
        return defaults["head_dim"]
    if fields.has("kv_lora_rank") and fields.has("qk_nope_head_dim"):
        # What a head multiplies; the cache holds the latent instead.
        nope = fields.size("qk_nope_head_dim", limit=MAX_HEAD_DIM)
        return nope + fields.size("qk_rope_head_dim", limit=MAX_HEAD_DIM)
    spelling = first_of(fields, "hidden_size", "n_embd", "d_model") or "hidden_size"
    hidden_size = fields.size(spelling)
    if hidden_size % query_heads:
        raise fields.error(
            spelling, f"must be a multiple of the {query_heads} heads where head_dim is absent"
        )
    return hidden_size // query_heads


def _default(defaults: Mapping[str, int], name: str) -> tuple[int, ...]:
    return (defaults[name],) if name in defaults else ()
