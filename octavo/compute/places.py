"""Where each stored weight goes in the decoder. Arithmetic of rows: no tensor is touched here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.compute.families import TOP, Names, family_of
from octavo.compute.weights import expected_shapes
from octavo.core.model_config import ModelConfig


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


def places(config: ModelConfig) -> dict[str, Place]:
    """The place of every tensor in `expected_shapes(config)`, by stored name."""
    shapes = expected_shapes(config)
    found = _stack(TOP, shapes, prefix="", layer=None)
    row = family_of(config).layer
    for layer in range(config.n_layers):
        found |= _stack(row, shapes, prefix=f"model.layers.{layer}.", layer=layer)
    assert found.keys() == shapes.keys()
    return found


def _stack(
    fields: Names, shapes: Mapping[str, tuple[int, ...]], *, prefix: str, layer: int | None
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
