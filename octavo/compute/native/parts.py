"""A source's weights as the kernels take them: as stored, or rounded on the way.

Owns the order of reading and the check that a tensor is still what its header said. Knows sources
only by the types of their tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from octavo.compute.gguf_quants import PLAIN
from octavo.compute.gguf_source import GGUFSource
from octavo.compute.native.float_grids import round_matrix
from octavo.compute.native.gguf_grids import grid_of
from octavo.compute.native.layers import Part
from octavo.compute.native.panels import Floats
from octavo.compute.places import places
from octavo.compute.weights import WeightSource
from octavo.core.errors import ModelFileError

TABLES = ("embed", "head")  # what matters most: of 8 bits whatever the rest is


def parts(
    source: WeightSource, *, quantization: str | None, round_to_bf16: bool
) -> Iterator[tuple[str, Part]]:
    """Each weight once: vectors as floats, matrices as grids or as 16-bit floats.

    `quantization` and `round_to_bf16` are for sources whose matrices are floats; without either,
    those are of 16 bits. Raises ModelFileError for a tensor that is not what the source announced
    or that cannot be rounded.
    """
    where, shapes = places(source.config()), source.shapes()
    for name, type_name, values in _stored(source):
        shape = shapes[name]
        if type_name not in PLAIN and len(shape) > 1:
            yield name, grid_of(values, type_name)
            continue
        if tuple(values.shape) != shape or not values.is_floating_point():
            raise ModelFileError(f"weight {name} changed while it was read", param=name)
        if len(shape) == 1:
            yield name, values
        elif quantization is not None:
            kind = kind_of(where[name].field, quantization)
            yield name, round_matrix(values, kind, name=name)
        else:
            yield name, Floats(values.bfloat16() if round_to_bf16 else values)


def kind_of(field: str, quantization: str) -> str:
    """What a matrix of that field is rounded to."""
    return "int8" if field in TABLES else quantization


def _stored(source: WeightSource) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Name, type and values of each tensor; blocks as uint8 [rows, row bytes]."""
    if not isinstance(source, GGUFSource):
        types = source.types()
        for name, tensor in source.tensors():
            yield name, types[name], tensor
        return
    shapes = source.shapes()
    for name, type_name, raw in source.stored():
        plain = PLAIN.get(type_name)
        yield name, type_name, raw if plain is None else raw.view(plain).reshape(shapes[name])
