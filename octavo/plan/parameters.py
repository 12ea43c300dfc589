"""How many weights a model has, counted from its config. Only for shapes that leave nothing open.

Plain attention with gated MLPs, dense or of experts; anything else is left blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.plan.geometry import Attention, Part
from octavo.plan.hf_heads import Heads
from octavo.plan.model import Parameters

# Model types whose layers are q, k, v, o and a gated MLP of three matrices.
_DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text")
_EXPERTS = {
    "mixtral": ("num_local_experts", "intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
    "minimax_m2": ("num_local_experts", "intermediate_size"),
}
_HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")
_TIED = ("gemma2", "gemma3_text")


def estimated(
    text: Mapping[str, Any], heads: Heads, *, n_layers: int, parts: Sequence[Part]
) -> Parameters | None:
    """Weights of a model of a known shape; None for others and where a field is missing."""
    kind = str(text.get("model_type"))
    if kind not in _DENSE and kind not in _EXPERTS:
        return None
    if not all(isinstance(part, Attention) for part in parts):
        return None
    names = ("hidden_size", "vocab_size", *(() if kind in _EXPERTS else ("intermediate_size",)))
    if not all(type(text.get(name)) is int and 0 < text[name] < 1 << 32 for name in names):
        return None
    hidden, vocab = text["hidden_size"], text["vocab_size"]
    tied = bool(text.get("tie_word_embeddings", kind in _TIED))
    outside = vocab * hidden * (1 if tied else 2) + hidden
    attention = sum(_attention(heads, kv, hidden, kind, text) for kv in heads.kv_heads)
    norms = n_layers * hidden * (4 if kind.startswith("gemma") else 2)
    fixed = outside + attention + norms
    if kind in _DENSE:
        total = fixed + n_layers * 3 * hidden * text["intermediate_size"]
        return Parameters(total=total, active=total, source="counted from the config")
    return _with_experts(text, kind, fixed, n_layers=n_layers)


def _attention(heads: Heads, kv: int, hidden: int, kind: str, text: Mapping[str, Any]) -> int:
    """q, o of all heads; k, v of the KV heads; the biases and norms that some have."""
    q, k, v = heads.query_heads * heads.key_dim, kv * heads.key_dim, kv * heads.value_dim
    count = hidden * (2 * q + k + v)
    if kind == "qwen2" or text.get("attention_bias") is True:
        count += q + k + v + (0 if kind == "qwen2" else hidden)
    return count + (2 * heads.key_dim if kind in _HEAD_NORMS else 0)


def _with_experts(
    text: Mapping[str, Any], kind: str, fixed: int, *, n_layers: int
) -> Parameters | None:
    count_name, width_name = _EXPERTS[kind]
    numbers = [text.get(name) for name in (count_name, width_name, "num_experts_per_tok")]
    if not all(type(n) is int and 0 < n < 1 << 24 for n in numbers):
        return None
    experts, width, chosen = (int(str(n)) for n in numbers)
    hidden = text["hidden_size"]
    expert = 3 * hidden * width
    routers = n_layers * hidden * experts
    return Parameters(
        total=fixed + routers + n_layers * experts * expert,
        active=fixed + routers + n_layers * chosen * expert,
        source="counted from the config",
        experts=experts,
        experts_of_token=chosen,
    )
