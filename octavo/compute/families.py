"""Model families: what each stores under which names, and what it does beyond a plain Llama.

A family is a row, not a class. Knows names and flags; sizes are `weights.expected_shapes`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig

Names = Mapping[str, tuple[str, ...]]  # decoder field -> the stored tensors it is stacked from

TOP: Names = MappingProxyType(
    {"embed": ("model.embed_tokens",), "norm": ("model.norm",), "head": ("lm_head",)}
)
_LLAMA = {
    "attn_norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_FUSED = {"qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)}
_HEAD_NORMS = {"q_norm": ("self_attn.q_norm",), "k_norm": ("self_attn.k_norm",)}
# Gemma's second norms stand between a sublayer and the residual; the name that others give to the
# norm before the MLP is here that of the one after attention.
_SANDWICH = {
    "attn_post_norm": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "mlp_post_norm": ("post_feedforward_layernorm",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`layer`: names within one layer, as above.

    attention_bias, mlp_bias  the config's flag of that name may be set
    out_bias                  with attention_bias the output projection has one too
    scaled_embedding          embeddings are multiplied by sqrt(hidden_size)
    activation                of the gate: silu, or gelu_tanh (GELU in its tanh form)
    """

    layer: Names
    attention_bias: bool = False
    out_bias: bool = True
    mlp_bias: bool = False
    scaled_embedding: bool = False
    activation: str = "silu"


def _gemma(more: Names) -> Family:
    return Family(
        layer=MappingProxyType({**_LLAMA, **_SANDWICH, **more}),
        attention_bias=True,
        scaled_embedding=True,
        activation="gelu_tanh",
    )


FAMILIES = MappingProxyType(
    {
        "llama": Family(layer=MappingProxyType(_LLAMA), attention_bias=True, mlp_bias=True),
        "mistral": Family(layer=MappingProxyType(_LLAMA)),
        "qwen2": Family(layer=MappingProxyType(_LLAMA), attention_bias=True, out_bias=False),
        "qwen3": Family(layer=MappingProxyType({**_LLAMA, **_HEAD_NORMS}), attention_bias=True),
        "phi3": Family(layer=MappingProxyType({**_LLAMA, **_FUSED})),
        "gemma2": _gemma({}),
        "gemma3": _gemma(_HEAD_NORMS),
    }
)


def family_of(config: ModelConfig) -> Family:
    """The row for `config.family`; raises ModelFileError for a family or flag that has none."""
    family = FAMILIES.get(config.family)
    if family is None:
        raise ModelFileError(
            f"model family {config.family[:40]!a} is not supported; known are "
            f"{', '.join(FAMILIES)}",
            param="architectures",
        )
    for flag in ("attention_bias", "mlp_bias"):
        if getattr(config, flag) and not getattr(family, flag):
            raise ModelFileError(
                f"a {config.family} model has no such biases, yet {flag} is set", param=flag
            )
    return family
