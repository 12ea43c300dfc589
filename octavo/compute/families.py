"""Model families: where each stored weight goes in the decoder. A family is a row, not a class.

Knows names and places; sizes are `weights.expected_shapes`'s, and no tensor is touched here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.compute.weights import expected_shapes
from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig

# Decoder field -> the stored tensors it is stacked from, in order.
_TOP = MappingProxyType(
    {"embed": ("model.embed_tokens",), "norm": ("model.norm",), "head": ("lm_head",)}
)
_LLAMA = MappingProxyType(
    {
        "attn_norm": ("input_layernorm",),
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "mlp_norm": ("post_attention_layernorm",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
)


@dataclass(frozen=True, slots=True)
class Family:
    """`layer`: as above, names within one layer. `biases`: the config's bias flags may be set."""

    layer: Mapping[str, tuple[str, ...]]
    biases: bool


FAMILIES = MappingProxyType({"llama": Family(_LLAMA, True), "mistral": Family(_LLAMA, False)})


@dataclass(frozen=True, slots=True)
class Place:
    """Where one stored tensor goes: rows [begin, begin + shape[0]) of `field`, which has `rows`.

    `layer` is None outside the layers. A `norm` stays float32 whatever the model computes in.
    """

    layer: int | None
    field: str
    begin: int
    rows: int
    shape: tuple[int, ...]
    norm: bool


def family_of(config: ModelConfig) -> Family:
    """The row for `config.family`; raises ModelFileError for a family or flag that has none."""
    family = FAMILIES.get(config.family)
    if family is None:
        raise ModelFileError(
            f"model family {config.family[:40]!a} is not supported; known are "
            f"{', '.join(FAMILIES)}",
            param="architectures",
        )
    if not family.biases and (config.attention_bias or config.mlp_bias):
        raise ModelFileError(
            f"a {config.family} model has no biases, yet attention_bias or mlp_bias is set",
            param="attention_bias",
        )
    return family


def places(config: ModelConfig) -> dict[str, Place]:
    """The place of every tensor in `expected_shapes(config)`, by stored name."""
    shapes = expected_shapes(config)
    found = _stack(_TOP, shapes, prefix="", layer=None)
    row = family_of(config).layer
    for layer in range(config.n_layers):
        found |= _stack(row, shapes, prefix=f"model.layers.{layer}.", layer=layer)
    assert found.keys() == shapes.keys()
    return found


def _stack(
    fields: Mapping[str, tuple[str, ...]],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    prefix: str,
    layer: int | None,
) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for field, stems in fields.items():
        for kind, suffix in (("weight", ""), ("bias", "_bias")):
            names = [name for stem in stems if (name := f"{prefix}{stem}.{kind}") in shapes]
            rows, begin = sum(shapes[name][0] for name in names), 0
            for name in names:
                norm = field.endswith("norm")
                found[name] = Place(layer, field + suffix, begin, rows, shapes[name], norm)
                begin += shapes[name][0]
    return found
