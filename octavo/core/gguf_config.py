"""GGUF metadata as a ModelConfig. Owns which architectures and keys are understood.

What the metadata leaves to the tensor directory (a tied head, biases) comes from the tensors'
names; the file's RoPE divisors are tensor data and are added by whoever reads tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.model_config import ModelConfig, RopeConfig

FAMILIES = {"llama": "llama"}
# general.file_type of files that are not quantised.
_PLAIN_DTYPES = {0: "float32", 1: "float16", 32: "bfloat16"}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def from_gguf(metadata: Mapping[str, Any], *, tensor_names: Collection[str] = ()) -> ModelConfig:
    """Read `metadata`; raises ModelFileError naming the key.

    `tensor_names` are the file's own: without "output.weight" among them the head is tied.
    """
    arch = metadata.get("general.architecture")
    family = FAMILIES.get(arch) if isinstance(arch, str) else None
    if family is None:
        shown = ascii(arch[:64]) if isinstance(arch, str) else "missing"
        raise ModelFileError(
            f"GGUF: general.architecture is {shown}; known are {', '.join(FAMILIES)}",
            param="general.architecture",
        )
    fields = Fields(metadata, "GGUF", prefix=f"{arch}.")
    _refuse_unread(fields)
    n_heads = fields.size("attention.head_count")
    kv_heads = fields.size("attention.head_count_kv", n_heads)
    if n_heads % kv_heads:
        raise fields.error("attention.head_count_kv", f"must divide head_count = {n_heads}")
    hidden_size = fields.size("embedding_length")
    head_dim = _head_dim(fields, hidden_size, n_heads)
    vocab_size = _vocab_size(fields, metadata)
    tokenizer = Fields(metadata, "GGUF", prefix="tokenizer.ggml.")
    ends = [i for key in _END_KEYS for i in tokenizer.ids(key, vocab_size=vocab_size)]
    return ModelConfig(
        family=family,
        n_layers=fields.size("block_count", limit=4096),
        hidden_size=hidden_size,
        n_heads=n_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.size("feed_forward_length"),
        vocab_size=vocab_size,
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=RopeConfig(theta=fields.number("rope.freq_base", 10000.0), dim=head_dim),
        max_position=fields.size("context_length", limit=MAX_TOKENS),
        tie_embeddings="output.weight" not in tensor_names,
        attention_bias="blk.0.attn_q.bias" in tensor_names,
        mlp_bias="blk.0.ffn_gate.bias" in tensor_names,
        dtype=_dtype(metadata),
        bos_token_ids=tokenizer.ids("bos_token_id", vocab_size=vocab_size),
        eos_token_ids=tuple(dict.fromkeys(ends)),
    )


def _refuse_unread(fields: Fields) -> None:
    for name, allowed in (
        ("expert_count", 0),
        ("attention.sliding_window", 0),
        ("rope.scaling.type", "none"),
        ("rope.scale_linear", 1.0),
        ("use_parallel_residual", False),
    ):
        fields.only(name, allowed)


def _head_dim(fields: Fields, hidden_size: int, n_heads: int) -> int:
    if not fields.has("attention.key_length") and hidden_size % n_heads:
        raise fields.error("embedding_length", f"must be a multiple of head_count = {n_heads}")
    head_dim = fields.size("attention.key_length", hidden_size // n_heads, limit=4096)
    if head_dim % 2:
        raise fields.error("attention.key_length", f"must be even; heads have {head_dim}")
    for name in ("attention.value_length", "rope.dimension_count"):
        fields.only(name, head_dim)
    return head_dim


def _vocab_size(fields: Fields, metadata: Mapping[str, Any]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if fields.has("vocab_size") or not isinstance(tokens, list):
        return fields.size("vocab_size")
    if not tokens:
        raise ModelFileError("GGUF: tokenizer.ggml.tokens is empty", param="tokenizer.ggml.tokens")
    return len(tokens)


def _dtype(metadata: Mapping[str, Any]) -> str:
    """Of the stored values; quantised ones have none of their own and count as float32."""
    file_type = metadata.get("general.file_type")
    return _PLAIN_DTYPES.get(file_type, "float32") if isinstance(file_type, int) else "float32"
