"""Fields of a `config.json` that may change what a sequence keeps, and that nothing here reads.

They are refused by name: a figure for another architecture than the config's is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.core.fields import Fields

# Parts of names that size caches.
TELLING = (
    "mamba",
    "ssm_",
    "rwkv",
    "recurrent",
    "linear_attn",
    "linear_num",
    "kv_lora",
    "compress_ratio",
    "sliding_window",
    "attention_chunk",
    "kv_shared",
    "sparse_attention",
    "cross_layer",
    "cla_",
    "lightning",
    "time_mix",
    "yoco",
    "lru_width",
)
READ = frozenset(
    (
        "sliding_window",
        "sliding_window_size",
        "use_sliding_window",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "max_window_layers",
        "attention_chunk_size",
        "num_kv_shared_layers",
        "kv_lora_rank",
        "linear_num_value_heads",
        "linear_num_key_heads",
        "linear_attn_config",
        "sparse_attention_config",
        "compress_ratios",
        "mamba_num_heads",
        "mamba_n_heads",
        "mamba_head_dim",
        "mamba_d_head",
        "mamba_d_state",
        "mamba_expand",
        "mamba_d_conv",
        "mamba_n_groups",
        "ssm_state_size",
        # These shape weights or arithmetic, not what is kept.
        "mamba_proj_bias",
        "mamba_conv_bias",
        "mamba_hidden_act",
        "mamba_chunk_size",
        "mamba_dt_rank",
        "mamba_inner_layernorms",
        "use_mamba_kernels",
        "mamba_rms_norm",
        "mamba_ssm_dtype",
        "mamba_ssm_cache_dtype",
    )
)


def refuse_unread(fields: Fields, text: Mapping[str, Any]) -> None:
    """Raises ModelFileError naming the first such field."""
    if text.get("is_encoder_decoder"):
        raise fields.error("is_encoder_decoder", "is not supported: only decoders are planned")
    for name, value in text.items():
        is_set = value is not None and value is not False and value not in (0, [], {})
        if is_set and name not in READ and any(part in name for part in TELLING):
            raise fields.error(
                name[:64], "may change what a sequence keeps and is not understood here"
            )
