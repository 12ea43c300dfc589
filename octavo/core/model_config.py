"""The shape of a model as its own files state it. Plain values: no tensors, no files."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LongropeScaling:
    """LongRoPE (arXiv 2402.13753): every frequency divided by a factor of its own.

    One list of factors holds up to `original_max_position`, another beyond. `is_long` says which
    one runs; a config as read from a file has not decided yet. `attention_factor` scales the
    rotated q and k under both.
    """

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_max_position: int
    attention_factor: float
    is_long: bool = False


Scaling = Llama3Scaling | LinearScaling | YarnScaling | LongropeScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding over the first `dim` of each head; pairs are (i, i + dim/2)."""

    theta: float
    dim: int
    scaling: Scaling | None = None
    freq_factors: tuple[float, ...] | None = None  # a GGUF file's per-frequency divisors

    def at_length(self, max_tokens: int) -> RopeConfig:
        """The embedding of an engine whose longest sequence has `max_tokens`.

        It must not depend on the sequence at hand: K in the cache was turned before anybody knew
        how long its sequence would become.
        """
        if not isinstance(self.scaling, LongropeScaling):
            return self
        is_long = max_tokens > self.scaling.original_max_position
        return replace(self, scaling=replace(self.scaling, is_long=is_long))


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
