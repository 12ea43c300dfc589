"""Weights from one GGUF file, decoded to float32 under Hugging Face names.

Owns the order of rows. Architecture "llama" rotates neighbours (2t, 2t + 1) of a head's rows where
we rotate (t, t + d/2), so there the rows of q and k are stored in another order and put back here.
Bytes are read, not mapped: a file that is cut while we read is an error, not a fault, and every
tensor is decoded once anyway.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from octavo.compute.fingerprint import HashedFile, fingerprint
from octavo.compute.gguf_names import hf_name
from octavo.compute.gguf_quants import PLAIN, check_readable, dequantise
from octavo.core.errors import ModelFileError
from octavo.core.gguf_config import from_gguf
from octavo.core.gguf_header import GGUFTensor, read_header
from octavo.core.model_config import ModelConfig

ROPE_DIVISORS = "rope_freqs.weight"


class GGUFSource:
    """A GGUF file. Opening reads the header and the RoPE divisors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = read_header(path)
        self._fingerprint: bytes | None = None
        stored = {tensor.name: tensor for tensor in self._header.tensors}
        config = from_gguf(self._header.metadata, tensor_names=stored)
        divisors = stored.pop(ROPE_DIVISORS, None)
        self._config = config if divisors is None else self._with_divisors(config, divisors)
        for tensor in stored.values():
            _check_type(tensor)
        family = self._config.family
        self._tensors = {hf_name(tensor.name, family): tensor for tensor in stored.values()}
        self._pairs = family == "llama"

    def config(self) -> ModelConfig:
        return self._config

    def metadata(self) -> dict[str, Any]:
        return self._header.metadata

    def names(self) -> list[str]:
        return list(self._tensors)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def total_bytes(self) -> int:
        return 4 * sum(math.prod(tensor.shape) for tensor in self._tensors.values())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor as float32."""
        for name, type_name, raw in self.stored():
            tensor = self._tensors[name]
            yield name, dequantise(raw, type_name, name=tensor.name).reshape(tensor.shape)

    def types(self) -> dict[str, str]:
        """Storage type of each tensor."""
        return {name: tensor.type for name, tensor in self._tensors.items()}

    def stored(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Name, storage type and bytes of each tensor: uint8 [rows, row bytes], rows in our order.

        A vector has a row per element.
        """
        with self._open() as file:
            for name, tensor in self._tensors.items():
                raw = self._raw(file, tensor)
                if self._pairs and ".q_proj." in name:
                    raw = halves_first(raw, self._config.n_heads)
                elif self._pairs and ".k_proj." in name:
                    raw = halves_first(raw, self._config.kv_heads)
                yield name, tensor.type, raw

    def fingerprint(self) -> bytes:
        if self._fingerprint is not None:
            return self._fingerprint
        header = self._header
        spans = tuple((tensor.offset, tensor.n_bytes) for tensor in header.tensors)
        file = HashedFile(self._path, header.data_offset, header.file_bytes, spans)
        self._fingerprint = fingerprint(self._config, [file])
        return self._fingerprint

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except OSError as error:
            raise ModelFileError(f"{self._path.name}: cannot be read: {error.strerror}") from error

    def _raw(self, file: BinaryIO, tensor: GGUFTensor) -> torch.Tensor:
        """Stored bytes, uint8 [rows, row bytes]; a vector has a row per element."""
        file.seek(tensor.offset)
        raw = np.fromfile(file, np.uint8, tensor.n_bytes)
        if len(raw) != tensor.n_bytes:
            raise ModelFileError(f"{self._path.name}: the file ends inside tensor {tensor.name!a}")
        return torch.from_numpy(raw).reshape(tensor.shape[0], -1)

    def _with_divisors(self, config: ModelConfig, tensor: GGUFTensor) -> ModelConfig:
        """Take the divisors of the rotation frequencies, one per pair, into the config."""
        if tensor.shape != (config.rope.dim // 2,) or tensor.type != "F32":
            raise ModelFileError(
                f"{ROPE_DIVISORS} must be {config.rope.dim // 2} F32 values", param=ROPE_DIVISORS
            )
        with self._open() as file:
            values = self._raw(file, tensor).view(torch.float32).flatten().tolist()
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise ModelFileError(f"{ROPE_DIVISORS} must be above zero", param=ROPE_DIVISORS)
        rope = dataclasses.replace(config.rope, freq_factors=tuple(values))
        return dataclasses.replace(config, rope=rope)


def _check_type(tensor: GGUFTensor) -> None:
    check_readable(tensor.type, name=tensor.name)
    if len(tensor.shape) == 1 and tensor.type not in PLAIN:
        raise ModelFileError(
            f"tensor {tensor.name!a} is a vector stored as {tensor.type}; vectors must be one of "
            f"{', '.join(PLAIN)}",
            param=tensor.name,
        )


def halves_first(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder `rows` [heads · d, …]: per head from (0, 0', 1, 1', …) to (0, 1, …, 0', 1', …).

    Row t of a head's first half and row t' of its second are rotated together; the file has them
    side by side.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)
