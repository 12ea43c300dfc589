"""A Hugging Face `config.json` as a ModelConfig. Owns which families and fields are understood.

A field that would change the result and is not understood is refused by name. Fields that a family
does not read are left alone. Knows no files: it gets the parsed objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.model_config import Llama3Scaling, ModelConfig, RopeConfig

FAMILIES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral"}
DTYPES = ("float32", "bfloat16", "float16")
ROPE_TYPES = ("default", "llama3")


def from_hf(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Read `config`, with defaults as the architecture's own; raises ModelFileError.

    End-of-text ids come from `generation_config` where it has any, else from `config`.
    """
    family = _family(config)
    fields = Fields(config, "config.json")
    _refuse_unread(fields, config, family)
    n_heads = fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", n_heads)
    if n_heads % kv_heads:
        raise fields.error("num_key_value_heads", f"must divide num_attention_heads = {n_heads}")
    hidden_size = fields.size("hidden_size")
    head_dim = _head_dim(fields, hidden_size, n_heads)
    vocab_size = fields.size("vocab_size")
    bos, eos = _special_ids(fields, generation_config, vocab_size)
    return ModelConfig(
        family=family,
        n_layers=fields.size("num_hidden_layers", limit=4096),
        hidden_size=hidden_size,
        n_heads=n_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.size("intermediate_size"),
        vocab_size=vocab_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=_rope(fields, head_dim),
        max_position=fields.size("max_position_embeddings", limit=MAX_TOKENS),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        dtype=_dtype(fields),
        bos_token_ids=bos,
        eos_token_ids=eos,
    )


def _family(config: Mapping[str, Any]) -> str:
    known = ", ".join(FAMILIES)
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ModelFileError(
            f"config.json: architectures must be a list of one name; known are {known}",
            param="architectures",
        )
    family = FAMILIES.get(names[0])
    if family is None:
        raise ModelFileError(
            f"config.json: architectures is {names[0][:64]!a}; known are {known}",
            param="architectures",
        )
    return family


def _refuse_unread(fields: Fields, config: Mapping[str, Any], family: str) -> None:
    fields.absent("quantization_config", "use unquantised safetensors or a GGUF file")
    fields.only("hidden_act", "silu")
    fields.only("rope_interleaved", False)
    fields.only("partial_rotary_factor", 1.0)
    # Mistral's code takes a window of 4096 where the field is absent: only null means none.
    if family == "mistral" and "sliding_window" not in config:
        raise fields.error("sliding_window", "is missing, which means 4096; only null is supported")
    fields.absent("sliding_window", "layers with a window are not supported")
    layer_types = config.get("layer_types")
    if layer_types is not None and (
        not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types)
    ):
        raise fields.error("layer_types", 'may only hold "full_attention"')
    if family == "mistral":
        fields.only("attention_bias", False)
        fields.only("mlp_bias", False)


def _head_dim(fields: Fields, hidden_size: int, n_heads: int) -> int:
    if not fields.has("head_dim") and hidden_size % n_heads:
        raise fields.error("hidden_size", f"must be a multiple of num_attention_heads = {n_heads}")
    head_dim = fields.size("head_dim", hidden_size // n_heads, limit=4096)
    if head_dim % 2:
        raise fields.error("head_dim", f"must be even for rotary pairs; it is {head_dim}")
    return head_dim


def _rope(fields: Fields, head_dim: int) -> RopeConfig:
    """Both spellings: `rope_parameters`, and the older `rope_theta` beside `rope_scaling`."""
    nested = fields.table("rope_parameters")
    scaling = nested or fields.table("rope_scaling")
    if nested is not None and nested.has("rope_theta"):
        theta = nested.number("rope_theta")
    else:
        theta = fields.number("rope_theta", 10000.0)
    return RopeConfig(theta=theta, dim=head_dim, scaling=_scaling(scaling))


def _scaling(scaling: Fields | None) -> Llama3Scaling | None:
    if scaling is None:
        return None
    scaling.only("partial_rotary_factor", 1.0)
    field = "rope_type" if scaling.has("rope_type") else "type"
    rope_type = scaling.text(field, "default")
    if rope_type == "default":
        return None
    if rope_type != "llama3":
        raise scaling.error(field, f"must be one of {', '.join(ROPE_TYPES)}")
    result = Llama3Scaling(
        factor=scaling.number("factor"),
        low_freq_factor=scaling.number("low_freq_factor"),
        high_freq_factor=scaling.number("high_freq_factor"),
        original_max_position=scaling.size("original_max_position_embeddings", limit=MAX_TOKENS),
    )
    # The blend between both ends divides by their difference.
    if result.high_freq_factor <= result.low_freq_factor:
        raise scaling.error("high_freq_factor", "must be above low_freq_factor")
    return result


def _dtype(fields: Fields) -> str:
    field = "dtype" if fields.has("dtype") else "torch_dtype"
    dtype = fields.text(field, "float32")
    if dtype not in DTYPES:
        raise fields.error(field, f"must be one of {', '.join(DTYPES)}")
    return dtype


def _special_ids(
    fields: Fields, generation_config: Mapping[str, Any] | None, vocab_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    generation = Fields(generation_config or {}, "generation_config.json")
    bos, eos = (
        (generation if generation.has(name) else fields).ids(name, vocab_size=vocab_size)
        for name in ("bos_token_id", "eos_token_id")
    )
    return bos, eos
