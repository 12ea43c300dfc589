"""The sampling that a model's makers recommend, as its files state it. A value and its reading.

Owns the two spellings: generation_config.json of a folder, `general.sampling.*` of a GGUF file.
Of both only what is named here is read. End-of-sequence ids are read with the model's config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from octavo.compute.json_file import read_object
from octavo.core.errors import ModelFileError
from octavo.core.sampling import SamplingParams
from octavo.engine.validate import MAX_TEMPERATURE, REPETITION_PENALTIES

GENERATION_CONFIG = "generation_config.json"
GGUF_METADATA = "GGUF metadata"
IGNORE_THEM = "start with generation_config none to ignore what the model's files recommend"
_GGUF_PREFIX = "general.sampling."
_LAST_N = f"{_GGUF_PREFIX}penalty_last_n"
_MOST = 1 << 31


class _Row(NamedTuple):
    """Names in generation_config.json and in a GGUF file (None: there is none), and bounds."""

    folder_name: str
    gguf_name: str | None
    low: float
    high: float
    whole: bool = False


_FIELDS = {
    "temperature": _Row("temperature", "temp", 0, MAX_TEMPERATURE),
    "top_k": _Row("top_k", "top_k", 0, _MOST, whole=True),
    "top_p": _Row("top_p", "top_p", 0, 1),
    "min_p": _Row("min_p", "min_p", 0, 1),
    "repetition_penalty": _Row("repetition_penalty", "penalty_repeat", *REPETITION_PENALTIES),
    "max_tokens": _Row("max_new_tokens", None, 1, _MOST, whole=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Recommended parameters under the names of `SamplingParams`; None where the files are silent.

    A model that says it does not sample recommends temperature 0. `source` is where they stand.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    source: str | None = None

    def stated(self) -> dict[str, Any]:
        """Field → value, for the fields that are stated."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in values.items() if value is not None}

    def params(self, **given: Any) -> SamplingParams:
        """Parameters that have what is `given`, and the recommendation for the rest.

        Beams draw nothing, so a search takes none of what shapes drawing.
        """
        stated = self.stated()
        if given.get("beam_width") is not None:
            stated = {name: value for name, value in stated.items() if name == "max_tokens"}
        return SamplingParams(**{**stated, **given})

    def __str__(self) -> str:
        """As shown at the start: `temperature 0.6, top_k 20 (generation_config.json)`."""
        shown = [
            f"{name} {value if _FIELDS[name].whole else f'{value:g}'}"
            for name, value in self.stated().items()
        ]
        return f"{', '.join(shown)} ({self.source})" if shown else "no defaults of the model"


def generation_defaults(path: Path, metadata: Mapping[str, Any] | None) -> GenerationDefaults:
    """What the model folder at `path`, or the .gguf file with `metadata`, recommends.

    Raises ModelFileError naming file and field where a value is out of its bounds.
    """
    if metadata is not None:
        return from_gguf_metadata(metadata)
    file = path / GENERATION_CONFIG
    return from_generation_config(read_object(file)) if file.is_file() else GenerationDefaults()


def from_generation_config(values: Mapping[str, Any]) -> GenerationDefaults:
    """From the object in generation_config.json."""
    names = {field: row.folder_name for field, row in _FIELDS.items()}
    found = _checked(values, names, where=GENERATION_CONFIG)
    samples = values.get("do_sample")
    if samples is not None and type(samples) is not bool:
        raise _error(GENERATION_CONFIG, "do_sample", "must be true or false")
    if samples is False:
        found["temperature"] = 0.0
    return GenerationDefaults(**found, source=GENERATION_CONFIG if found else None)


def from_gguf_metadata(metadata: Mapping[str, Any]) -> GenerationDefaults:
    """From the metadata of a GGUF file. A penalty of the last tokens alone is not one we have."""
    names = {f: _GGUF_PREFIX + row.gguf_name for f, row in _FIELDS.items() if row.gguf_name}
    found = _checked(metadata, names, where=GGUF_METADATA)
    if found.get("repetition_penalty", 1) != 1 and metadata.get(_LAST_N, -1) != -1:
        raise _error(GGUF_METADATA, _LAST_N, "must be absent or -1: penalties see all tokens here")
    return GenerationDefaults(**found, source=GGUF_METADATA if found else None)


def _checked(values: Mapping[str, Any], names: Mapping[str, str], *, where: str) -> dict[str, Any]:
    """Field → value within its bounds, for the fields that are there and not null."""
    found: dict[str, Any] = {}
    for field, name in names.items():
        value, row = values.get(name), _FIELDS[field]
        if value is None:
            continue
        if field == "top_k" and type(value) is int and value == -1:
            value = 0  # the other spelling of "keep all"
        kinds = (int,) if row.whole else (int, float)
        fits = type(value) in kinds and row.low <= value <= row.high
        if not fits or (field == "top_p" and value == 0):
            kind = "a whole number" if row.whole else "a number"
            raise _error(where, name, f"must be {kind} from {row.low} to {row.high}")
        found[field] = value if row.whole else float(value)
    return found


def _error(where: str, name: str, what: str) -> ModelFileError:
    return ModelFileError(f"{where}: {name} {what}; {IGNORE_THEM}", param=name)
