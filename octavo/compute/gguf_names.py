"""Names of a GGUF file's tensors as Hugging Face ones. Owns the tables of both, per family."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_WHOLE_MODEL = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA = {
    **_LLAMA,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PHI3 = {
    **{name: _LLAMA[name] for name in ("attn_norm", "attn_output", "ffn_norm", "ffn_down")},
    "attn_qkv": "self_attn.qkv_proj",
    "ffn_up": "mlp.gate_up_proj",  # gate and up in one, as in the source's own file
}
_PER_LAYER: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "llama": _LLAMA,
        "qwen2": _LLAMA,
        "qwen3": {**_LLAMA, **_HEAD_NORMS},
        "phi3": _PHI3,
        "gemma2": _GEMMA,
        "gemma3": {**_GEMMA, **_HEAD_NORMS},
    }
)
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,5})\.([a-z_]+)\.(weight|bias)", re.ASCII)


def hf_name(name: str, family: str) -> str:
    """Hugging Face name of a GGUF tensor; a name that is not known stays, for the check to list."""
    match = _LAYER.fullmatch(name)
    if match and match[2] in _PER_LAYER[family]:
        return f"model.layers.{match[1]}.{_PER_LAYER[family][match[2]]}.{match[3]}"
    stem, dot, suffix = name.rpartition(".")
    return f"{_WHOLE_MODEL[stem]}{dot}{suffix}" if stem in _WHOLE_MODEL else name
