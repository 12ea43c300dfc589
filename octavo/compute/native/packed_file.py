"""Rounded and packed weights as one file, for the next start. Owns its layout.

    magic, key [32 bytes], SHA-256 of the data, then the data: every field of the model in the order
    of `_slots`, matrices as their panels' memory, vectors as float32

The file says nothing about itself: what must be in it, and how long it is, follows from the model's
config and the quantization. Whatever does not fit is not used, and is written anew.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from octavo.compute import kept_weights
from octavo.compute.native import float_grids, layers, panels
from octavo.compute.native.float_grids import grid_bytes, grid_weights
from octavo.compute.native.layers import ModelPanels, assembled
from octavo.compute.native.panels import PREFETCHED_BYTES, Panels
from octavo.compute.native.parts import kind_of
from octavo.compute.places import places
from octavo.core.model_config import ModelConfig

log = logging.getLogger(__name__)

MAGIC = b"octavo packed 1\n"
HASH_BYTES = 32
# What is in a file depends on their code; a change makes files of before foreign.
_CODE = (float_grids, panels, layers)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One field: a matrix [rows, k] of a kind, or a vector of rows, where `k` is 0."""

    layer: int | None
    field: str
    rows: int
    k: int
    kind: str

    @property
    def n_bytes(self) -> int:
        return grid_bytes(self.rows, self.k, self.kind) if self.k else 4 * self.rows

    @property
    def beyond_bytes(self) -> int:
        """Memory after these that is never more than prefetched, and whatever it was before."""
        return PREFETCHED_BYTES if self.k else 0


def key_of(fingerprint: bytes, quantization: str) -> bytes:
    """Names the content of a file; `fingerprint` is the source's."""
    parts = [quantization.encode(), fingerprint]
    parts += [Path(each.__file__ or "").read_bytes() for each in _CODE]
    digest = hashlib.sha256(MAGIC)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def save(model: ModelPanels, key: bytes, config: ModelConfig, *, quantization: str) -> None:
    """Keep `model` for `read`. Where that cannot be, a warning says so and nothing is lost."""
    memories = [_memory(model, slot) for slot in _slots(config, quantization)]

    def put(file: BinaryIO) -> None:
        digest = hashlib.sha256()
        for memory in memories:
            digest.update(memory)
        file.write(MAGIC + key + digest.digest())
        for memory in memories:
            file.write(memory)

    try:
        kept_weights.write(kept_weights.path_of(key), put)
    except OSError as error:
        log.warning("rounded weights are not kept for the next start: %s", error.strerror)


def read(key: bytes, config: ModelConfig, *, quantization: str) -> ModelPanels | None:
    """What `save` has kept under that key; None if nothing is there, or not quite that."""
    path, slots = kept_weights.path_of(key), list(_slots(config, quantization))
    try:
        with path.open("rb") as file:
            found = _read(file, key, slots)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("kept weights cannot be read and are made again: %s", error.strerror)
        return None
    if found is None:
        log.warning("kept weights are damaged or not ours and are made again: %s", path.name)
        return None
    kept_weights.used(path)
    return assembled(config, found)


def _read(
    file: BinaryIO, key: bytes, slots: list[_Slot]
) -> dict[tuple[int | None, str], object] | None:
    head = MAGIC + key
    n_bytes = len(head) + HASH_BYTES + sum(slot.n_bytes for slot in slots)
    if file.seek(0, 2) != n_bytes:
        return None
    file.seek(0)
    if file.read(len(head)) != head:
        return None
    wanted, digest = file.read(HASH_BYTES), hashlib.sha256()
    found: dict[tuple[int | None, str], object] = {}
    for slot in slots:
        memory = torch.empty(slot.n_bytes + slot.beyond_bytes, dtype=torch.uint8)
        view = _view(memory, slot.n_bytes)
        if file.readinto(view) != slot.n_bytes:  # type: ignore[attr-defined]
            return None
        digest.update(view)
        found[slot.layer, slot.field] = _value(memory, slot)
    return found if digest.digest() == wanted else None


def _slots(config: ModelConfig, quantization: str) -> Iterator[_Slot]:
    """Every field once, in the order of `places`."""
    seen = set()
    for place in places(config).values():
        if (place.layer, place.field) in seen:
            continue
        seen.add((place.layer, place.field))
        k = place.shape[1] if len(place.shape) > 1 else 0
        yield _Slot(place.layer, place.field, place.rows, k, kind_of(place.field, quantization))


def _memory(model: ModelPanels, slot: _Slot) -> memoryview:
    owner = model if slot.layer is None else model.layers[slot.layer]
    value = getattr(owner, slot.field)
    if slot.field == "qkv":
        (value,) = value  # of one format, so in one piece
    memory = value.memory if isinstance(value, Panels) else value.view(torch.uint8)
    assert memory.numel() == slot.n_bytes + slot.beyond_bytes
    return _view(memory, slot.n_bytes)


def _view(memory: torch.Tensor, n_bytes: int) -> memoryview:
    return memoryview(memory.numpy()[:n_bytes].data)


def _value(memory: torch.Tensor, slot: _Slot) -> object:
    if not slot.k:
        return memory.view(torch.float32)
    found = Panels(memory, grid_weights(memory, slot.rows, slot.k, slot.kind))
    return (found,) if slot.field == "qkv" else found
