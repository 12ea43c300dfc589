"""A model's weights as the kernels read them: matrices in panels, vectors as float32.

Owns how a decoder's fields become panels; knows no file format and no op. A part that has arrived
is kept as it came only until its field is whole, so there is one copy of the weights in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from octavo.compute.native.panels import (
    Floats,
    Grid,
    Matrix,
    Panels,
    halves,
    interleave,
    pack,
    stack,
)
from octavo.compute.places import Place, places
from octavo.compute.weights import WeightSource, check_complete
from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig

Part = Matrix | torch.Tensor  # a tensor is a vector
Parts = Iterator[tuple[str, Part]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPanels:
    """One layer. `qkv` is in as many pieces as it has formats, side by side; `gate_up` is
    interleaved, its bias likewise."""

    attn_norm: torch.Tensor
    qkv: tuple[Panels, ...]
    qkv_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    out: Panels
    out_bias: torch.Tensor | None = None
    attn_post_norm: torch.Tensor | None = None
    mlp_norm: torch.Tensor
    gate_up: Panels
    gate_up_bias: torch.Tensor | None = None
    down: Panels
    down_bias: torch.Tensor | None = None
    mlp_post_norm: torch.Tensor | None = None

    def matrices(self) -> tuple[Panels, ...]:
        return (*self.qkv, self.out, self.gate_up, self.down)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPanels:
    """`embed` and `head` are the same panels if tied."""

    embed: Panels
    layers: tuple[LayerPanels, ...]
    norm: torch.Tensor
    head: Panels

    @property
    def n_bytes(self) -> int:
        """Of all matrices, each counted once."""
        every = {id(each): each for layer in self.layers for each in layer.matrices()}
        every |= {id(each): each for each in (self.embed, self.head)}
        return sum(each.n_bytes for each in every.values())


def load_panels(
    source: WeightSource, parts: Parts, *, progress: Callable[[int, int], None] | None = None
) -> ModelPanels:
    """Pack every part that `source` announced, in the order of `parts`.

    Raises ModelFileError for missing, unknown or repeated parts.
    """
    check_complete(source)
    config = source.config()
    waiting = places(config)
    total = len(waiting)
    fields = _Fields(config)
    for name, part in parts:
        place = waiting.pop(name, None)
        if place is None:
            raise ModelFileError(f"weight {name[:96]!a} came twice or was not announced")
        fields.put(place, part)
        if progress is not None:
            progress(total - len(waiting), total)
    if waiting:
        raise ModelFileError(f"{len(waiting)} announced weights never came: {next(iter(waiting))}")
    return fields.model()


class _Fields:
    """Fields while their parts arrive, packed as soon as they are whole."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._parts: dict[tuple[int | None, str], dict[int, Part]] = {}
        self._done: dict[tuple[int | None, str], object] = {}

    def put(self, place: Place, part: Part) -> None:
        key = (place.layer, place.field)
        if isinstance(part, torch.Tensor) and place.norm:
            part = part.float() + self._config.norm_offset
        arrived = self._parts.setdefault(key, {})
        arrived[place.begin] = part
        if sum(_rows(each) for each in arrived.values()) == place.rows:
            ordered = [arrived[begin] for begin in sorted(arrived)]
            self._done[key] = _whole(place.field, ordered)
            del self._parts[key]

    def model(self) -> ModelPanels:
        return assembled(self._config, self._done)


def assembled(config: ModelConfig, fields: Mapping[tuple[int | None, str], object]) -> ModelPanels:
    """A model of its fields by layer (None: outside the layers) and name."""
    layers: list[dict[str, object]] = [{} for _ in range(config.n_layers)]
    top: dict[str, object] = {}
    for (layer, field), value in fields.items():
        (top if layer is None else layers[layer])[field] = value
    if config.tie_embeddings:
        top["head"] = top["embed"]
    made = tuple(LayerPanels(**layer) for layer in layers)  # type: ignore[arg-type]
    return ModelPanels(layers=made, **top)  # type: ignore[arg-type]


def _rows(part: Part) -> int:
    return len(part if isinstance(part, torch.Tensor) else part.arrays()[0])


def _whole(field: str, parts: list[Part]) -> object:
    """One field of LayerPanels or ModelPanels from its parts in order."""
    matrices = [part for part in parts if isinstance(part, Grid | Floats)]
    if not matrices:
        vector = torch.cat([part.float() for part in parts if isinstance(part, torch.Tensor)])
        return _turns(vector) if field == "gate_up_bias" else vector.contiguous()
    if field == "qkv":
        return tuple(pack(stack(run)) for run in _runs(matrices))
    if field == "gate_up":
        gate, up = matrices if len(matrices) == 2 else halves(matrices[0])
        return pack(interleave(gate, up))
    return pack(matrices[0])


def _runs(matrices: list[Matrix]) -> list[list[Matrix]]:
    """Neighbours of one format together."""
    runs = [[matrices[0]]]
    for matrix in matrices[1:]:
        if matrix.format == runs[-1][0].format:
            runs[-1].append(matrix)
        else:
            runs.append([matrix])
    return runs


def _turns(bias: torch.Tensor) -> torch.Tensor:
    """Gate and up in turns of 32, as `panels.interleave` does with rows."""
    return bias.view(2, -1, 32).transpose(0, 1).reshape(-1)
