"""GGUF metadata as a ModelConfig. Owns which architectures and keys are understood.

What the metadata leaves to the tensor directory (a tied head, biases) comes from the tensors'
names; the file's RoPE divisors are tensor data and are added by whoever reads tensors. Gemma's norm
weights are stored with their offset added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.hf_layers import every_nth_full
from octavo.core.model_config import LinearScaling, ModelConfig, RopeConfig

FAMILIES = ("llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3")
# general.file_type of files that are not quantised.
_PLAIN_DTYPES = {0: "float32", 1: "float16", 32: "bfloat16"}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# The files do not say what Gemma scales its scores by: head_dim ** -0.5, save in the largest model
# of each generation, told by its number of layers, where it is that of hidden_size over heads.
_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}


def from_gguf(metadata: Mapping[str, Any], *, tensor_names: Collection[str] = ()) -> ModelConfig:
    """Read `metadata`; raises ModelFileError naming the key.

    `tensor_names` are the file's own: without "output.weight" among them the head is tied.
    """
    arch = _architecture(metadata)
    fields = Fields(metadata, "GGUF", prefix=f"{arch}.")
    _refuse_unread(fields, tensor_names)
    n_layers = fields.size("block_count", limit=4096)
    n_heads = fields.size("attention.head_count")
    hidden_size = fields.size("embedding_length")
    head_dim = _head_dim(fields, hidden_size, n_heads)
    vocab_size = _vocab_size(fields, metadata)
    bos, eos = _special_ids(metadata, vocab_size)
    window, sliding = _layers(fields, arch, n_layers=n_layers)
    rope, local_rope = _ropes(fields, arch, head_dim=head_dim)
    attention_cap, logit_cap = _caps(fields, arch)
    return ModelConfig(
        family=arch,
        n_layers=n_layers,
        hidden_size=hidden_size,
        n_heads=n_heads,
        kv_heads=_kv_heads(fields, n_heads),
        head_dim=head_dim,
        intermediate_size=fields.size("feed_forward_length"),
        vocab_size=vocab_size,
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        max_position=fields.size("context_length", limit=MAX_TOKENS),
        tie_embeddings="output.weight" not in tensor_names,
        attention_bias="blk.0.attn_q.bias" in tensor_names,
        mlp_bias="blk.0.ffn_gate.bias" in tensor_names,
        window=window,
        sliding_layers=sliding,
        local_rope=local_rope,
        attention_scale=(
            (hidden_size / n_heads) ** -0.5 if _LARGEST_GEMMA.get(arch) == n_layers else None
        ),
        attention_softcap=attention_cap,
        logit_softcap=logit_cap,
        dtype=_dtype(metadata),
        bos_token_ids=bos,
        eos_token_ids=eos,
    )


def _architecture(metadata: Mapping[str, Any]) -> str:
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in FAMILIES:
        shown = ascii(arch[:64]) if isinstance(arch, str) else "missing"
        raise ModelFileError(
            f"GGUF: general.architecture is {shown}; known are {', '.join(FAMILIES)}",
            param="general.architecture",
        )
    return arch


def _refuse_unread(fields: Fields, tensor_names: Collection[str]) -> None:
    for name, allowed in (
        ("expert_count", 0),
        ("rope.scale_linear", 1.0),
        ("use_parallel_residual", False),
    ):
        fields.only(name, allowed)
    fields.absent("attention.scale", "scores are scaled as the architecture has it")
    if any(name.startswith("rope_factors_") for name in tensor_names):
        raise ModelFileError(
            "GGUF: tensors rope_factors_long and rope_factors_short (longrope) are not supported",
            param="rope_factors_long.weight",
        )


def _layers(fields: Fields, arch: str, *, n_layers: int) -> tuple[int | None, tuple[int, ...]]:
    """The window in tokens and the layers that have it."""
    if arch in ("gemma2", "gemma3"):
        period = 2 if arch == "gemma2" else 6
        if arch == "gemma3":
            period = fields.size("attention.sliding_window_pattern", period, limit=4096)
        sliding = every_nth_full(period, n_layers)
        return fields.size("attention.sliding_window", limit=MAX_TOKENS), sliding
    if arch != "phi3":
        fields.only("attention.sliding_window", 0)
        return None, ()
    window = fields.count("attention.sliding_window", 0, limit=MAX_TOKENS)
    return (window, tuple(range(n_layers))) if window else (None, ())


def _ropes(fields: Fields, arch: str, *, head_dim: int) -> tuple[RopeConfig, RopeConfig | None]:
    """Rotations of all or full layers, and of sliding ones where they have their own."""
    dim = head_dim
    if arch == "phi3":
        dim = fields.size("rope.dimension_count", head_dim, limit=head_dim)
        if dim % 2:
            raise fields.error("rope.dimension_count", "must be even")
    else:
        fields.only("rope.dimension_count", head_dim)
    scaling = None
    rope_type = fields.text("rope.scaling.type", "linear")
    if rope_type not in ("none", "linear"):
        raise fields.error("rope.scaling.type", "must be one of none, linear")
    if rope_type == "linear" and fields.has("rope.scaling.factor"):
        scaling = LinearScaling(factor=fields.number("rope.scaling.factor"))
    if arch != "gemma3":
        theta = fields.number("rope.freq_base", 10000.0)
        return RopeConfig(theta=theta, dim=dim, scaling=scaling), None
    local = RopeConfig(theta=fields.number("rope.freq_base_swa", 10000.0), dim=dim)
    return RopeConfig(theta=fields.number("rope.freq_base"), dim=dim, scaling=scaling), local


def _caps(fields: Fields, arch: str) -> tuple[float | None, float | None]:
    """Soft caps of scores and logits."""
    if arch == "gemma2":
        return (
            fields.number("attn_logit_softcapping", 50.0),
            fields.number("final_logit_softcapping", 30.0),
        )
    fields.absent("attn_logit_softcapping", "this architecture does not cap its scores")
    if arch == "gemma3" and fields.has("final_logit_softcapping"):
        return None, fields.number("final_logit_softcapping")
    return None, None


def _kv_heads(fields: Fields, n_heads: int) -> int:
    kv_heads = fields.size("attention.head_count_kv", n_heads)
    if n_heads % kv_heads:
        raise fields.error("attention.head_count_kv", f"must divide head_count = {n_heads}")
    return kv_heads


def _head_dim(fields: Fields, hidden_size: int, n_heads: int) -> int:
    if not fields.has("attention.key_length") and hidden_size % n_heads:
        raise fields.error("embedding_length", f"must be a multiple of head_count = {n_heads}")
    head_dim = fields.size("attention.key_length", hidden_size // n_heads, limit=4096)
    if head_dim % 2:
        raise fields.error("attention.key_length", f"must be even; heads have {head_dim}")
    fields.only("attention.value_length", head_dim)
    return head_dim


def _vocab_size(fields: Fields, metadata: Mapping[str, Any]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if fields.has("vocab_size") or not isinstance(tokens, list):
        return fields.size("vocab_size")
    if not tokens:
        raise ModelFileError("GGUF: tokenizer.ggml.tokens is empty", param="tokenizer.ggml.tokens")
    return len(tokens)


def _special_ids(
    metadata: Mapping[str, Any], vocab_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that begin a text, and every id that ends one."""
    tokenizer = Fields(metadata, "GGUF", prefix="tokenizer.ggml.")
    ends = [i for key in _END_KEYS for i in tokenizer.ids(key, vocab_size=vocab_size)]
    return tokenizer.ids("bos_token_id", vocab_size=vocab_size), tuple(dict.fromkeys(ends))


def _dtype(metadata: Mapping[str, Any]) -> str:
    """Of the stored values; quantised ones have none of their own and count as float32."""
    file_type = metadata.get("general.file_type")
    return _PLAIN_DTYPES.get(file_type, "float32") if isinstance(file_type, int) else "float32"
