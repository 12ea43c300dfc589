"""Rotary position embedding: angle tables and the rotation. Knows no layers and no cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from octavo.core.errors import ConfigError, ModelFileError
from octavo.core.model_config import (
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    RopeConfig,
    YarnScaling,
)

MOST_POSITIONS = 1 << 24  # float32 counts integers exactly up to here


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and signed sines of one step's positions: float32 [tokens, 1, dim] each.

    The first half of `sin` is negated, so that one multiply-add with the swapped halves rotates.
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate x [tokens, heads, head_dim] in float32; dims past `dim` pass through.

        Pairs are (i, i + dim/2): out_i = x_i cos - x_j sin, out_j = x_j cos + x_i sin.
        """
        dim = self.cos.shape[-1]
        turned = (x if dim == x.shape[-1] else x[..., :dim]).float()
        out = torch.addcmul(turned * self.cos, turned.roll(dim // 2, -1), self.sin).to(x.dtype)
        return out if dim == x.shape[-1] else torch.cat((out, x[..., dim:]), dim=-1)


class RopeTable:
    """cos and sin of every position below `n_positions`, float32 [n_positions, dim].

    `n_positions` is the longest sequence, which decides between LongRoPE's two lists.
    """

    def __init__(
        self, config: RopeConfig, n_positions: int, *, device: torch.device | str = "cpu"
    ) -> None:
        if not 1 <= n_positions <= MOST_POSITIONS:
            raise ConfigError(
                f"max_model_len must be in [1, {MOST_POSITIONS}]; got {n_positions}",
                param="max_model_len",
            )
        # The product is taken in float32, as in the training code of the models served here.
        config = config.at_length(n_positions)
        positions = torch.arange(n_positions, dtype=torch.float32)
        angles = torch.outer(positions, inverse_frequencies(config))
        cos, sin = angles.cos(), angles.sin()
        if isinstance(config.scaling, YarnScaling | LongropeScaling):
            cos, sin = (part * config.scaling.attention_factor for part in (cos, sin))
        self.n_positions = n_positions
        self.cos = torch.cat((cos, cos), dim=-1).to(device)
        self.sin = torch.cat((-sin, sin), dim=-1).to(device)

    def at(self, positions: torch.Tensor) -> Rotation:
        """Rows for int64 `positions` [tokens]; gathered once per step, shared by all layers."""
        return Rotation(
            self.cos.index_select(0, positions).unsqueeze(1),
            self.sin.index_select(0, positions).unsqueeze(1),
        )


def inverse_frequencies(config: RopeConfig) -> torch.Tensor:
    """theta^(-2i/dim) for i < dim/2, float32, with the model's scaling or divisors applied."""
    dim = config.dim
    if dim < 2 or dim % 2 or not (math.isfinite(config.theta) and config.theta > 0):
        raise ModelFileError(
            f"rope needs an even dimension and a positive base; got dim {dim}, "
            f"rope_theta {config.theta}",
            param="rope_theta",
        )
    if config.scaling is not None and config.freq_factors is not None:
        raise ModelFileError(
            "rope_scaling and a tensor of frequency factors exclude each other: the factors are "
            "that scaling, worked out",
            param="rope_scaling",
        )
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    frequencies = 1.0 / (config.theta**exponents)
    match config.scaling:
        case Llama3Scaling():
            return _llama3(frequencies, config.scaling)
        case YarnScaling():
            return _yarn(frequencies, config.scaling, theta=config.theta)
        case LinearScaling(factor=factor):
            _check_positive(factor)
            return frequencies / factor
        case LongropeScaling() as scaling:
            _check_positive(scaling.attention_factor)
            factors = scaling.long_factors if scaling.is_long else scaling.short_factors
            return frequencies / _checked_factors(factors, dim // 2)
    if config.freq_factors is not None:
        return frequencies / _checked_factors(config.freq_factors, dim // 2)
    return frequencies


def _llama3(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Divide low frequencies by `factor`, keep high ones, blend linearly in original/wavelength.

    Source: the Llama 3.1 model card's rope_scaling fields.
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    values = (scaling.factor, low, high, float(scaling.original_max_position))
    if not all(math.isfinite(value) and value > 0 for value in values) or high <= low:
        raise ModelFileError(
            "rope_scaling needs positive factor, low_freq_factor < high_freq_factor and "
            "original_max_position_embeddings",
            param="rope_scaling",
        )
    turns = scaling.original_max_position * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)


def _yarn(frequencies: torch.Tensor, scaling: YarnScaling, *, theta: float) -> torch.Tensor:
    """Keep fast frequencies, divide slow ones by `factor`, ramp linearly in the pair's number.

    The ramp ends at the pairs that turn beta_fast and beta_slow times over the original context.
    Source: YaRN, arXiv 2309.00071, section 3.2.
    """
    original = scaling.original_max_position
    _check_positive(scaling.factor, original, scaling.attention_factor)
    _check_positive(scaling.beta_fast, scaling.beta_slow)
    pairs = len(frequencies)
    if theta <= 1:
        raise ModelFileError("rope_theta must be above 1 for yarn", param="rope_theta")

    def pair_of(turns: float) -> float:
        return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(theta)

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    width = high - low if high != low else 0.001
    slow = ((torch.arange(pairs, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return frequencies / scaling.factor * slow + frequencies * (1.0 - slow)


def _check_positive(*values: float) -> None:
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ModelFileError("rope_scaling needs positive, finite numbers", param="rope_scaling")


def _checked_factors(factors: tuple[float, ...], wanted: int) -> torch.Tensor:
    if len(factors) != wanted or not all(math.isfinite(f) and f > 0 for f in factors):
        raise ModelFileError(
            f"rope frequency factors must be {wanted} positive numbers; got {len(factors)}",
            param="rope_freqs",
        )
    return torch.tensor(factors, dtype=torch.float32)
