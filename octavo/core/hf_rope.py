"""The rotary embedding that a `config.json` states, in each of its spellings.

A type or field that would change the angles and is not understood is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.model_config import (
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    RopeConfig,
    Scaling,
    YarnScaling,
)

LAYER_TYPES = ("full_attention", "sliding_attention")


def read_rope(
    fields: Fields, *, dim: int, max_position: int, types: tuple[str, ...], theta: float = 10000.0
) -> RopeConfig:
    """Both spellings: `rope_parameters`, and the older `rope_theta` beside `rope_scaling`.

    `types` are the family's; `theta` is its default. `dim`: elements of a head that turn.
    """
    nested = fields.table("rope_parameters")
    if nested is not None and nested.has("rope_theta"):
        theta = nested.number("rope_theta")
    else:
        theta = fields.number("rope_theta", theta)
    scaling = nested or fields.table("rope_scaling")
    rope = _rope(scaling, theta, dim=dim, max_position=max_position, types=types)
    if scaling is None or scaling.text(_type_field(scaling), "default") not in _LONGROPE:
        return rope
    return replace(rope, scaling=_longrope(fields, scaling, dim=dim, max_position=max_position))


def read_local_and_global_rope(
    fields: Fields, *, dim: int, max_position: int, types: tuple[str, ...]
) -> tuple[RopeConfig, RopeConfig]:
    """Gemma 3: (of full layers, of sliding layers), each with its own base.

    Either nested by layer type in `rope_parameters`, or `rope_theta` and `rope_scaling` for the
    full ones and `rope_local_base_freq` for the others.
    """
    nested = fields.table("rope_parameters")
    older = fields.table("rope_scaling")
    found = []
    for layer_type, name, default in (
        ("full_attention", "rope_theta", 1e6),
        ("sliding_attention", "rope_local_base_freq", 1e4),
    ):
        own = nested.table(layer_type) if nested is not None else None
        if own is not None and own.has("rope_theta"):
            theta = own.number("rope_theta")
        else:
            theta = fields.number(name, default)
        if own is None and layer_type == "full_attention":
            own = older
        found.append(_rope(own, theta, dim=dim, max_position=max_position, types=types))
    return found[0], found[1]


def rotary_dim(fields: Fields, head_dim: int) -> int:
    """int(head_dim · partial_rotary_factor), which may stand beside or inside `rope_parameters`."""
    nested = fields.table("rope_parameters")
    where = nested if nested is not None and nested.has("partial_rotary_factor") else fields
    factor = where.number("partial_rotary_factor", 1.0)
    dim = int(head_dim * factor) if factor <= 1 else 0
    if dim < 2 or dim % 2:
        raise where.error(
            "partial_rotary_factor", f"must turn an even part of the head's {head_dim} elements"
        )
    return dim


def _rope(
    scaling: Fields | None, theta: float, *, dim: int, max_position: int, types: tuple[str, ...]
) -> RopeConfig:
    if scaling is None:
        return RopeConfig(theta=theta, dim=dim)
    for layer_type in LAYER_TYPES:
        scaling.absent(layer_type, "this family has one rotary embedding for all layers")
    field = _type_field(scaling)
    rope_type = scaling.text(field, "default")
    if rope_type not in types:
        raise scaling.error(field, f"must be one of {', '.join(types)}")
    reader = _default if rope_type in _LONGROPE else _SCALINGS[rope_type]
    read = reader(scaling, theta, max_position)
    return RopeConfig(theta=theta, dim=dim, scaling=read)


def _type_field(scaling: Fields) -> str:
    return "rope_type" if scaling.has("rope_type") else "type"


def _default(scaling: Fields, theta: float, max_position: int) -> None:
    del scaling, theta, max_position


def _linear(scaling: Fields, theta: float, max_position: int) -> LinearScaling:
    del theta, max_position
    return LinearScaling(factor=scaling.number("factor"))


def _dynamic(scaling: Fields, theta: float, max_position: int) -> None:
    """Dynamic NTK changes the base once a sequence is longer than `max_position`.

    No sequence here is: keys in the cache were turned by the base of their time, so a longer one
    would depend on its history. Up to there it is the plain embedding.
    """
    del theta, max_position
    scaling.number("factor")


def _llama3(scaling: Fields, theta: float, max_position: int) -> Llama3Scaling:
    del theta
    result = Llama3Scaling(
        factor=scaling.number("factor"),
        low_freq_factor=scaling.number("low_freq_factor"),
        high_freq_factor=scaling.number("high_freq_factor"),
        original_max_position=_original(scaling, max_position),
    )
    # The blend between both ends divides by their difference.
    if result.high_freq_factor <= result.low_freq_factor:
        raise scaling.error("high_freq_factor", "must be above low_freq_factor")
    return result


def _yarn(scaling: Fields, theta: float, max_position: int) -> YarnScaling:
    if theta <= 1:
        raise scaling.error("rope_theta", "must be above 1 for yarn")
    factor = scaling.number("factor")
    fast = scaling.number("beta_fast", 32.0)
    slow = scaling.number("beta_slow", 1.0)
    if fast <= slow:
        raise scaling.error("beta_fast", "must be above beta_slow")
    return YarnScaling(
        factor=factor,
        original_max_position=_original(scaling, max_position),
        attention_factor=_attention_factor(scaling, factor),
        beta_fast=fast,
        beta_slow=slow,
        truncate=scaling.flag("truncate", True),
    )


def _longrope(fields: Fields, scaling: Fields, *, dim: int, max_position: int) -> LongropeScaling:
    """The length before the stretch may stand beside `scaling` or in it; the stretch is the ratio.

    attention factor = sqrt(1 + ln(stretch) / ln(length before)), 1 without a stretch.
    """
    for name in ("short_mscale", "long_mscale"):
        scaling.absent(name, "one attention factor holds for both lists")
    name = "original_max_position_embeddings"
    where = fields if fields.has(name) else scaling
    original = where.size(name, limit=MAX_TOKENS)
    if original < 2:
        raise where.error(name, "must be above 1")
    stretch = max(1.0, scaling.number("factor", max_position / original))
    attention_factor = math.sqrt(1 + math.log(stretch) / math.log(original))
    return LongropeScaling(
        short_factors=scaling.numbers("short_factor", n=dim // 2),
        long_factors=scaling.numbers("long_factor", n=dim // 2),
        original_max_position=original,
        attention_factor=scaling.number("attention_factor", attention_factor),
    )


def _attention_factor(scaling: Fields, factor: float) -> float:
    """0.1 · mscale · ln(factor) + 1 (YaRN, equation 22), as a ratio where two scales are given."""

    def of(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    if scaling.has("attention_factor"):
        return scaling.number("attention_factor")
    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        return of(scaling.number("mscale")) / of(scaling.number("mscale_all_dim"))
    return of(1.0)


def _original(scaling: Fields, max_position: int) -> int:
    return scaling.size("original_max_position_embeddings", max_position, limit=MAX_TOKENS)


_SCALINGS: Mapping[str, Callable[[Fields, float, int], Scaling | None]] = MappingProxyType(
    {
        "default": _default,
        "linear": _linear,
        "dynamic": _dynamic,
        "yarn": _yarn,
        "llama3": _llama3,
    }
)
ROPE_TYPES = tuple(_SCALINGS)
_LONGROPE = ("longrope", "su")  # "su" is its name in the first files
PHI3_ROPE_TYPES = ("default", *_LONGROPE)
