"""The sampling that a model's makers recommend, as its files state it. A value and its reading.

Owns the two spellings: generation_config.json of a folder, `general.sampling.*` of a GGUF file.
Decides nothing: whether a recommendation is followed is the operator's choice, so nothing here
touches a request. End-of-sequence ids are the tokenizer's to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.compute.json_file import read_object
from octavo.core.errors import ModelFileError
from octavo.core.gguf_header import read_header

GENERATION_CONFIG = "generation_config.json"
_GGUF_PREFIX = "general.sampling."
# Field → its names in generation_config.json and in a GGUF file, and the values that make sense.
_FIELDS: dict[str, tuple[str, str, float, float]] = {
    "temperature": ("temperature", "temp", 0, 2),
    "top_k": ("top_k", "top_k", 0, 1 << 31),
    "top_p": ("top_p", "top_p", 0, 1),
    "min_p": ("min_p", "min_p", 0, 1),
    "repetition_penalty": ("repetition_penalty", "penalty_repeat", 0.01, 100),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Recommended parameters under the names of `SamplingParams`; None where the files are silent.

    A model that says it does not sample recommends temperature 0.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def stated(self) -> dict[str, float]:
        """The fields that are stated, for `dataclasses.replace` on a SamplingParams."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in values.items() if value is not None}


def generation_defaults(path: Path) -> GenerationDefaults:
    """What the model folder or .gguf file at `path` recommends.

    Raises ModelFileError naming a field whose value makes no sense.
    """
    if path.is_dir():
        file = path / GENERATION_CONFIG
        return from_generation_config(read_object(file)) if file.is_file() else GenerationDefaults()
    return from_gguf_metadata(read_header(path).metadata)


def from_generation_config(values: Mapping[str, Any]) -> GenerationDefaults:
    """From the object in generation_config.json."""
    names = {field: row[0] for field, row in _FIELDS.items()}
    found = _checked(values, names, where=GENERATION_CONFIG)
    samples = values.get("do_sample")
    if samples is not None and type(samples) is not bool:
        raise ModelFileError(
            f"{GENERATION_CONFIG}: do_sample must be true or false", param="do_sample"
        )
    if samples is False:
        found["temperature"] = 0.0
    return GenerationDefaults(**found)


def from_gguf_metadata(metadata: Mapping[str, Any]) -> GenerationDefaults:
    """From the metadata of a GGUF file."""
    names = {field: _GGUF_PREFIX + row[1] for field, row in _FIELDS.items()}
    return GenerationDefaults(**_checked(metadata, names, where="the GGUF file"))


def _checked(values: Mapping[str, Any], names: Mapping[str, str], *, where: str) -> dict[str, Any]:
    """Field → value within its bounds, for the fields that are there and not null."""
    found: dict[str, Any] = {}
    for field, name in names.items():
        value, (_, _, low, high) = values.get(name), _FIELDS[field]
        if value is None:
            continue
        whole = field == "top_k"
        if whole and value == -1 and type(value) is int:
            value = 0  # the other spelling of "keep all"
        fits = type(value) in ((int,) if whole else (int, float)) and low <= value <= high
        if not fits or (field == "top_p" and value == 0):
            kind = "a whole number" if whole else "a number"
            raise ModelFileError(f"{where}: {name} must be {kind} from {low} to {high}", param=name)
        found[field] = value if whole else float(value)
    return found
