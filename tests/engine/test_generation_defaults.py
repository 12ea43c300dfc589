"""What a model's files recommend for sampling: read and bounded, and never applied by itself."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gguf
import pytest

from octavo.core.errors import ModelFileError
from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import (
    GenerationDefaults,
    from_generation_config,
    generation_defaults,
)
from octavo.engine.validate import checked_params

STATED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}


def test_a_folder_recommends_by_its_generation_config(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path) == GenerationDefaults()
    config = {**STATED, "do_sample": True, "eos_token_id": [1, 2], "transformers_version": "5.0"}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert generation_defaults(tmp_path) == GenerationDefaults(**STATED)


def test_a_gguf_file_recommends_by_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_float32(gguf.Keys.General.SAMPLING_TEMP, 0.5)
    writer.add_int32(gguf.Keys.General.SAMPLING_TOP_K, 40)
    writer.add_float32(gguf.Keys.General.SAMPLING_PENALTY_REPEAT, 1.25)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = generation_defaults(path)
    assert found == GenerationDefaults(temperature=0.5, top_k=40, repetition_penalty=1.25)


@pytest.mark.parametrize(
    ("config", "stated"),
    [
        ({}, {}),
        ({"temperature": None, "top_p": None}, {}),
        ({"temperature": 1}, {"temperature": 1.0}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"do_sample": False, "temperature": 0.7, "top_k": 5}, {"temperature": 0.0, "top_k": 5}),
        ({"num_beams": 4, "max_length": 100}, {}),
    ],
)
def test_only_what_is_stated_counts(config: dict[str, Any], stated: dict[str, float]) -> None:
    assert from_generation_config(config).stated() == stated


def test_every_field_is_a_parameter_that_the_engine_takes() -> None:
    recommended = from_generation_config(STATED)
    params = replace(SamplingParams(), **recommended.stated())
    assert checked_params(params, vocab_size=100) == params
    names = {field.name for field in fields(GenerationDefaults)}
    assert names == STATED.keys() <= {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("temperature", 10**400),
        ("top_k", 1.5),
        ("top_k", -2),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", [0.1]),
        ("repetition_penalty", 0),
        ("do_sample", 1),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=field) as caught:
        from_generation_config({field: value})
    assert caught.value.param == field
