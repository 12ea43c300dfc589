"""The shape of a model as its own files state it. Plain values: no tensors, no files."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.grouping import groups_of
from octavo.core.spec import KVSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's frequency-dependent RoPE scaling (the model's published config fields)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Position interpolation: every frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071): fast frequencies kept, slow ones divided by `factor`, a ramp in
    between.

    `beta_fast` and `beta_slow` are the ends of the ramp in turns over the original context;
    `attention_factor` scales the rotated q and k; `truncate` rounds the ends to whole pairs.
    """

    factor: float
    original_max_position: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


Scaling = Llama3Scaling | LinearScaling | YarnScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding over the first `dim` of each head; pairs are (i, i + dim/2)."""

    theta: float
    dim: int
    scaling: Scaling | None = None
    freq_factors: tuple[float, ...] | None = None  # a GGUF file's per-frequency divisors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder's geometry. Sizes in elements, `max_position` and `window` in tokens.

    A query of a layer in `sliding_layers` reads the last `window` positions, its own included.
    Those layers rotate by `local_rope` where there is one.
    """

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
    window: int | None = None
    sliding_layers: tuple[int, ...] = ()
    local_rope: RopeConfig | None = None
    attention_scale: float | None = None  # of q · k; None: head_dim ** -0.5
    attention_softcap: float | None = None  # scores become cap · tanh(score / cap)
    logit_softcap: float | None = None
    norm_offset: float = 0.0  # what the file's norm weights lack
    dtype: str = "float32"  # the dtype the weights were saved in, if the files say so
    bos_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()

    def kv_spec(self, dtype: str, block_tokens: int) -> KVSpec:
        """KV geometry with K and V kept in `dtype`."""
        groups = groups_of(
            self.n_layers,
            self.sliding_layers,
            window=self.window,
            max_tokens=self.max_position,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=dtype,
        )
        return KVSpec(groups, block_tokens)
