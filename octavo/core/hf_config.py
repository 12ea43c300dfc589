"""A Hugging Face `config.json` as a ModelConfig. Owns which families and fields are understood.

A field that would change the result and is not understood is refused by name. Fields that a family
does not read are left alone. Knows no files: it gets the parsed objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.hf_layers import read_layers
from octavo.core.hf_rope import (
    PHI3_ROPE_TYPES,
    ROPE_TYPES,
    read_local_and_global_rope,
    read_rope,
    rotary_dim,
)
from octavo.core.model_config import ModelConfig, RopeConfig, YarnScaling

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """How one architecture's fields are read: its defaults, and what it does not have.

    attention_bias, mlp_bias  None: the config says so; else fixed by the architecture
    kv_heads_default          an absent num_key_value_heads means one for each query head
    head_dim                  default; None: hidden_size over heads
    gemma                     norm offset, soft caps, tied head, and other names for some fields
    """

    family: str
    attention_bias: bool | None = False
    mlp_bias: bool | None = False
    kv_heads_default: bool = False
    head_dim: int | None = None
    norm_eps: float = 1e-6
    rope_types: tuple[str, ...] = ROPE_TYPES
    partial_rotary: bool = False
    gemma: bool = False


FAMILIES = MappingProxyType(
    {
        "LlamaForCausalLM": _Row(
            family="llama", attention_bias=None, mlp_bias=None, kv_heads_default=True
        ),
        "MistralForCausalLM": _Row(family="mistral", kv_heads_default=True),
        "Qwen2ForCausalLM": _Row(family="qwen2", attention_bias=True),
        "Qwen3ForCausalLM": _Row(family="qwen3", attention_bias=None, head_dim=128),
        "Phi3ForCausalLM": _Row(
            family="phi3",
            kv_heads_default=True,
            norm_eps=1e-5,
            rope_types=PHI3_ROPE_TYPES,
            partial_rotary=True,
        ),
        "Gemma2ForCausalLM": _Row(family="gemma2", attention_bias=None, head_dim=256, gemma=True),
        "Gemma3ForCausalLM": _Row(family="gemma3", attention_bias=None, head_dim=256, gemma=True),
    }
)


def from_hf(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Read `config`, with defaults as the architecture's own; raises ModelFileError.

    End-of-text ids come from `generation_config` where it has any, else from `config`.
    """
    row = _row(config)
    fields = Fields(config, "config.json")
    _refuse_unread(fields, row)
    n_heads = fields.size("num_attention_heads")
    hidden_size = fields.size("hidden_size")
    head_dim = _head_dim(fields, row, hidden_size=hidden_size, n_heads=n_heads)
    n_layers = fields.size("num_hidden_layers", limit=4096)
    vocab_size = fields.size("vocab_size")
    bos, eos = _special_ids(fields, generation_config, vocab_size)
    window, sliding = read_layers(fields, config, family=row.family, n_layers=n_layers)
    rope, local_rope, max_position = _ropes(fields, row, head_dim=head_dim)
    return ModelConfig(
        family=row.family,
        n_layers=n_layers,
        hidden_size=hidden_size,
        n_heads=n_heads,
        kv_heads=_kv_heads(fields, config, row, n_heads=n_heads),
        head_dim=head_dim,
        intermediate_size=fields.size("intermediate_size"),
        vocab_size=vocab_size,
        norm_eps=fields.number("rms_norm_eps", row.norm_eps),
        rope=rope,
        max_position=max_position,
        tie_embeddings=fields.flag("tie_word_embeddings", row.gemma),
        attention_bias=_bias(fields, "attention_bias", row.attention_bias),
        mlp_bias=_bias(fields, "mlp_bias", row.mlp_bias),
        window=window,
        sliding_layers=sliding,
        local_rope=local_rope if sliding else None,
        dtype=_dtype(fields),
        bos_token_ids=bos,
        eos_token_ids=eos,
        **(_gemma(fields, config, row.family) if row.gemma else {}),
    )


def _row(config: Mapping[str, Any]) -> _Row:
    known = ", ".join(FAMILIES)
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ModelFileError(
            f"config.json: architectures must be a list of one name; known are {known}",
            param="architectures",
        )
    row = FAMILIES.get(names[0])
    if row is None:
        raise ModelFileError(
            f"config.json: architectures is {names[0][:64]!a}; known are {known}",
            param="architectures",
        )
    return row


def _refuse_unread(fields: Fields, row: _Row) -> None:
    fields.absent("quantization_config", "use unquantised safetensors or a GGUF file")
    fields.only("rope_interleaved", False)
    if row.gemma:
        fields.only("hidden_activation", "gelu_pytorch_tanh")
        fields.only("use_bidirectional_attention", False)
    else:
        fields.only("hidden_act", "silu")
    if not row.partial_rotary:
        fields.only("partial_rotary_factor", 1.0)
        for spelling in ("rope_parameters", "rope_scaling"):
            nested = fields.table(spelling)
            if nested is not None:
                nested.only("partial_rotary_factor", 1.0)


def _kv_heads(fields: Fields, config: Mapping[str, Any], row: _Row, *, n_heads: int) -> int:
    """Null means one KV head for each query head, save for Gemma; absence where the row says so."""
    name = "num_key_value_heads"
    defaults = row.kv_heads_default or (not row.gemma and name in config)
    kv_heads = fields.size(name, n_heads) if defaults else fields.size(name)
    if n_heads % kv_heads:
        raise fields.error(name, f"must divide num_attention_heads = {n_heads}")
    return kv_heads


def _head_dim(fields: Fields, row: _Row, *, hidden_size: int, n_heads: int) -> int:
    if not fields.has("head_dim") and row.head_dim is None and hidden_size % n_heads:
        raise fields.error("hidden_size", f"must be a multiple of num_attention_heads = {n_heads}")
    head_dim = fields.size("head_dim", row.head_dim or hidden_size // n_heads, limit=4096)
    if head_dim % 2:
        raise fields.error("head_dim", f"must be even for rotary pairs; it is {head_dim}")
    return head_dim


def _ropes(
    fields: Fields, row: _Row, *, head_dim: int
) -> tuple[RopeConfig, RopeConfig | None, int]:
    """Rotations of full and of sliding layers (None: the same), and the longest sequence.

    YaRN states the length it stretches and by how much; a config may leave the product out.
    """
    longest = fields.size("max_position_embeddings", limit=MAX_TOKENS)
    dim = rotary_dim(fields, head_dim) if row.partial_rotary else head_dim
    local = None
    if row.family == "gemma3":
        rope, local = read_local_and_global_rope(
            fields, dim=dim, max_position=longest, types=row.rope_types
        )
    else:
        rope = read_rope(fields, dim=dim, max_position=longest, types=row.rope_types)
    if isinstance(rope.scaling, YarnScaling) and local is None:
        stretched = rope.scaling.original_max_position * rope.scaling.factor
        longest = min(max(longest, int(stretched)), MAX_TOKENS)
    return rope, local, longest


def _bias(fields: Fields, name: str, fixed: bool | None) -> bool:
    if fixed is None:
        return fields.flag(name, False)
    if not fixed:
        fields.only(name, False)
    return fixed


def _gemma(fields: Fields, config: Mapping[str, Any], family: str) -> dict[str, Any]:
    """What only Gemma states. Gemma 3's own code reads no cap of the scores."""
    attention_cap, logit_cap = None, None
    if family == "gemma3":
        fields.absent("attn_logit_softcapping", "this architecture does not cap its scores")
        logit_cap = _cap(fields, config, "final_logit_softcapping", None)
    else:
        attention_cap = _cap(fields, config, "attn_logit_softcapping", 50.0)
        logit_cap = _cap(fields, config, "final_logit_softcapping", 30.0)
    return {
        "norm_offset": 1.0,
        "attention_scale": fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "attention_softcap": attention_cap,
        "logit_softcap": logit_cap,
    }


def _cap(
    fields: Fields, config: Mapping[str, Any], name: str, default: float | None
) -> float | None:
    """Absent: the default. Null: none."""
    if name not in config:
        return default
    return fields.number(name) if fields.has(name) else None


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
