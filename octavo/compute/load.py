"""Builds the decoder from a weight source: every announced tensor exactly once, in its place.

Memory is taken only once a stored tensor of the expected shape is at hand, so a config that lies
about its sizes cannot make it grow. Knows no file formats.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.compute.decoder import Decoder, DecoderWeights, LayerWeights
from octavo.compute.places import Place, places
from octavo.compute.rope import RopeTable
from octavo.compute.weights import WeightSource, check_complete
from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig

Progress = Callable[[int, int], None]  # tensors loaded, tensors in all


def load_decoder(
    source: WeightSource,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    n_positions: int | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """Read all weights into `dtype` on `device`.

    `n_positions` sizes the rotary table, in tokens (default: the model's own limit). `progress` is
    called after each tensor. Raises ModelFileError listing missing or unknown names, or for a
    tensor that is not what the source announced.
    """
    check_complete(source)
    config = source.config()
    waiting = places(config)
    total = len(waiting)
    if n_positions is None:
        n_positions = config.max_position
    rope = RopeTable(config.rope, n_positions, device=device)
    local_rope = None
    if config.local_rope is not None:
        local_rope = RopeTable(config.local_rope, n_positions, device=device)
    stacks = _Stacks(dtype, torch.device(device), norm_offset=config.norm_offset)
    for name, tensor in source.tensors():
        place = waiting.pop(name, None)
        if place is None:
            raise ModelFileError(f"weight {name[:96]!a} came twice or was not announced")
        stacks.put(name, tensor, place=place)
        if progress is not None:
            progress(total - len(waiting), total)
    if waiting:
        raise ModelFileError(f"{len(waiting)} announced weights never came: {next(iter(waiting))}")
    return Decoder(config, stacks.weights(config), rope=rope, local_rope=local_rope)


class _Stacks:
    """The decoder's tensors while their parts arrive."""

    def __init__(self, dtype: torch.dtype, device: torch.device, *, norm_offset: float) -> None:
        self._dtype = dtype
        self._norm_offset = norm_offset
        self._device = device
        self._fields: dict[tuple[int | None, str], torch.Tensor] = {}

    def put(self, name: str, tensor: torch.Tensor, *, place: Place) -> None:
        """Copy one stored tensor into its rows, converting it."""
        if tuple(tensor.shape) != place.shape or not tensor.is_floating_point():
            raise ModelFileError(
                f"weight {name} must be floating-point numbers of shape {list(place.shape)}; "
                f"it has shape {list(tensor.shape)}"
            )
        key = (place.layer, place.field)
        if key not in self._fields:
            shape = (place.rows, *place.shape[1:])
            dtype = torch.float32 if place.norm else self._dtype
            self._fields[key] = torch.empty(shape, dtype=dtype, device=self._device)
        rows = self._fields[key][place.begin : place.begin + place.shape[0]]
        rows.copy_(tensor)
        if place.norm and self._norm_offset:
            rows.add_(self._norm_offset)

    def weights(self, config: ModelConfig) -> DecoderWeights:
        layers: list[dict[str, torch.Tensor]] = [{} for _ in range(config.n_layers)]
        top: dict[str, torch.Tensor] = {}
        for (layer, field), tensor in self._fields.items():
            (top if layer is None else layers[layer])[field] = tensor
        if config.tie_embeddings:
            top["head"] = top["embed"]
        return DecoderWeights(layers=tuple(LayerWeights(**layer) for layer in layers), **top)
