"""A source's weights as the kernels take them: grids as stored, or rounded to on the way.

Owns the order of reading and the check that a tensor is still what its header said. Knows sources
only by the types of their tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from octavo.compute.gguf_quants import PLAIN, dequantise
from octavo.compute.gguf_source import GGUFSource
from octavo.compute.native.float_grids import round_matrix
from octavo.compute.native.gguf_grids import grid_of
from octavo.compute.native.layers import Part
from octavo.compute.places import places
from octavo.compute.weights import WeightSource
from octavo.core.errors import ModelFileError

TABLES = ("embed", "head")  # what matters most: of 8 bits whatever the rest is


def parts(source: WeightSource, *, quantization: str | None) -> Iterator[tuple[str, Part]]:
    """Each weight once: vectors as floats, matrices as grids.

    `quantization` is for sources whose matrices are floats. Raises ModelFileError for a tensor
    that is not what the source announced or that cannot be rounded.
    """
    where, shapes = places(source.config()), source.shapes()
    for name, type_name, values in _stored(source):
        shape = shapes[name]
        if type_name not in PLAIN and len(shape) > 1:
            yield name, grid_of(values, type_name)
            continue
        if tuple(values.shape) != shape or not values.is_floating_point():
            raise ModelFileError(f"weight {name} changed while it was read", param=name)
        if len(shape) > 1 and quantization is not None:
            kind = "int8" if where[name].field in TABLES else quantization
            yield name, round_matrix(values, kind, name=name)
        else:
            yield name, values


def _stored(source: WeightSource) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Name, type and values of each tensor; blocks as uint8 [rows, row bytes]."""
    if not isinstance(source, GGUFSource):
        types = source.types()
        for name, tensor in source.tensors():
            yield name, types[name], tensor
        return
    shapes = source.shapes()
    for name, type_name, raw in source.stored():
        if type_name in PLAIN:
            raw = dequantise(raw, type_name, name=name).reshape(shapes[name])
        yield name, type_name, raw
