"""Weights from a folder with config.json and safetensors, whole or in shards with an index.

Owns which files of the folder count. Every header is checked before the library opens the file.
Pickled weights are refused: reading them can run code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from octavo.compute.fingerprint import HashedFile, fingerprint
from octavo.compute.json_file import read_object
from octavo.compute.safetensors_header import SafetensorsHeader, read_header
from octavo.core.errors import ModelFileError
from octavo.core.hf_config import from_hf
from octavo.core.model_config import ModelConfig

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 100_000_000
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Rotation frequencies that checkpoints of 2023 stored; they follow from the config.
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class SafetensorsSource:
    """A checkpoint folder. Opening reads the JSON files and every header."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = _read_config(folder)
        self._headers = _read_headers(folder)
        self._stored_head = False
        self._fingerprint: bytes | None = None
        self._files: dict[str, str] = {}
        for file, header in self._headers.items():
            for name in header.tensors:
                if name == HEAD and self._config.tie_embeddings:
                    self._stored_head = True
                elif not _DERIVED.fullmatch(name):
                    self._files[name] = file

    def config(self) -> ModelConfig:
        return self._config

    def metadata(self) -> None:
        return None

    def names(self) -> list[str]:
        return list(self._files)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self._headers[file].tensors[name].shape for name, file in self._files.items()}

    def types(self) -> dict[str, str]:
        return {name: self._headers[file].tensors[name].dtype for name, file in self._files.items()}

    def total_bytes(self) -> int:
        return sum(self._headers[file].tensors[name].n_bytes for name, file in self._files.items())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor in the dtype it is stored in."""
        if self._stored_head:
            self._check_stored_head()
        for file in self._headers:
            names = [name for name, owner in self._files.items() if owner == file]
            yield from self._read(file, names)

    def fingerprint(self) -> bytes:
        if self._fingerprint is not None:
            return self._fingerprint
        files = [
            HashedFile(
                self._folder / file,
                header.data_offset,
                header.file_bytes,
                tuple((tensor.offset, tensor.n_bytes) for tensor in header.tensors.values()),
            )
            for file, header in self._headers.items()
        ]
        self._fingerprint = fingerprint(self._config, files)
        return self._fingerprint

    def _read(self, file: str, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        try:
            with safe_open(self._folder / file, framework="pt") as opened:
                for name in names:
                    # The library's tensor lies in the mapped file, which may change under us.
                    yield name, opened.get_tensor(name).clone()
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{file}: cannot be read: {str(error)[:200]!a}") from error

    def _check_stored_head(self) -> None:
        """A tied head that is stored all the same must equal the embedding."""
        pair: dict[str, torch.Tensor] = {}
        for wanted in (EMBEDDING, HEAD):
            owners = (f for f, header in self._headers.items() if wanted in header.tensors)
            pair.update(self._read(next(owners), [wanted]))
        if not torch.equal(pair[EMBEDDING], pair[HEAD]):
            raise ModelFileError(
                f"config.json says tie_word_embeddings, but {HEAD} differs from {EMBEDDING}; "
                "set tie_word_embeddings to false",
                param="tie_word_embeddings",
            )


def _read_config(folder: Path) -> ModelConfig:
    if not (folder / "config.json").is_file():
        raise ModelFileError(f"{folder.name}: no config.json; give a model folder or a .gguf file")
    generation = folder / "generation_config.json"
    return from_hf(
        read_object(folder / "config.json"),
        read_object(generation) if generation.is_file() else None,
    )


def _read_headers(folder: Path) -> dict[str, SafetensorsHeader]:
    """Header of each weight file, by file name, sorted."""
    if (folder / SINGLE).is_file():
        return {SINGLE: read_header(folder / SINGLE)}
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    if any(path for pattern in _PICKLED for path in folder.glob(pattern)):
        raise ModelFileError(
            f"{folder.name}: only pickled weights, which can run code and are never read; "
            "convert them to safetensors"
        )
    raise ModelFileError(f"{folder.name}: neither {SINGLE} nor {INDEX} is there")


def _read_shards(folder: Path) -> dict[str, SafetensorsHeader]:
    weight_map = read_object(folder / INDEX, limit_bytes=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{INDEX}: weight_map must map tensor names to files")
    shards: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w][\w.-]*\.safetensors", file):
            shown = file[:64] if isinstance(file, str) else "no text"
            raise ModelFileError(
                f"{INDEX}: {name[:64]!a} lies in {shown!a}; only names of .safetensors files of "
                "the same folder are read"
            )
        shards.setdefault(file, set()).add(name)
    headers = {}
    for file, names in sorted(shards.items()):
        header = read_header(folder / file)
        if names != header.tensors.keys():
            odd = sorted(names ^ header.tensors.keys())
            raise ModelFileError(
                f"{file} and {INDEX} disagree on {len(odd)} tensors, the first is {odd[0][:64]!a}"
            )
        headers[file] = header
    return headers
