"""A GGUF file's header as a PlannedModel. The engine's own reading of it gives the sizes."""

from __future__ import annotations

import math

from octavo.core.gguf_config import from_gguf
from octavo.core.gguf_header import GGUFHeader
from octavo.plan.geometry import Attention, Geometry, attention_of
from octavo.plan.model import Parameters, PlannedModel


def from_gguf_header(header: GGUFHeader, name: str) -> PlannedModel:
    """Raises ModelFileError where the engine would. Weights are the file's own bytes."""
    config = from_gguf(header.metadata, tensor_names=[tensor.name for tensor in header.tensors])
    total = sum(math.prod(tensor.shape) for tensor in header.tensors)
    parts = merged([attention_of(group) for group in config.kv_spec("bfloat16", 1).groups])
    n_full = sum(part.layers for part in parts if part.kind.closed)
    return PlannedModel(
        name=name,
        source="GGUF header",
        geometry=Geometry(tuple(parts)),
        layers=config.n_layers,
        hidden_size=config.hidden_size,
        query_heads=config.n_heads,
        head_dim=config.head_dim,
        score_width=n_full * config.n_heads * 2 * config.head_dim,
        max_position=config.max_position,
        weight_dtype=None,
        kv_dtype="float16",
        kv_rule="a GGUF file does not say; 16 bits",
        parameters=Parameters(total=total, active=total, source="counted in the file"),
        stored_weight_bytes=sum(tensor.n_bytes for tensor in header.tensors),
    )


def merged(parts: list[Attention]) -> list[Attention]:
    """Parts of one geometry as one: the engine cuts them into groups of equal size."""
    found: dict[tuple[object, int, int, int], Attention] = {}
    for part in parts:
        key = (part.kind, part.kv_heads, part.key_dim, part.value_dim)
        layers = part.layers + (found[key].layers if key in found else 0)
        found[key] = Attention(
            kind=part.kind,
            layers=layers,
            kv_heads=part.kv_heads,
            key_dim=part.key_dim,
            value_dim=part.value_dim,
        )
    return list(found.values())
