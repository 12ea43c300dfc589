"""The shape of a model as its own files state it. Plain values: no tensors, no files."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.spec import Full, Group, KVSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's frequency-dependent RoPE scaling (the model's published config fields)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding over the first `dim` of each head; pairs are (i, i + dim/2)."""

    theta: float
    dim: int
    scaling: Llama3Scaling | None = None
    freq_factors: tuple[float, ...] | None = None  # a GGUF file's per-frequency divisors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder's geometry. Sizes in elements, `max_position` in tokens."""

    family: str
    n_layers: int
    hidden_size: int
    n_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    norm_eps: float
    rope: RopeConfig
    max_position: int
    tie_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"  # the dtype the weights were saved in, if the files say so
    bos_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()

    def kv_spec(self, dtype: str, block_tokens: int) -> KVSpec:
        """KV geometry with K and V kept in `dtype`."""
        layers = tuple(range(self.n_layers))
        group = Group(Full(), layers, self.kv_heads, self.head_dim, dtype)
        return KVSpec((group,), block_tokens)
