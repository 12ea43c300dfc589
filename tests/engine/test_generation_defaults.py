"""What a model's files recommend for sampling: read, bounded, and taken where nothing is said."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gguf
import pytest

from octavo.core.errors import ModelFileError
from octavo.core.gguf_header import read_header
from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import (
    GenerationDefaults,
    from_generation_config,
    from_gguf_metadata,
    generation_defaults,
)
from octavo.engine.types import GenerateRequest
from octavo.engine.validate import checked_params
from tests.checkpoints import tiny_llama
from tests.engine.tiny import Desk, built

STATED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}
NAMES = {*STATED, "max_tokens"}


def test_a_folder_recommends_by_its_generation_config(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path, None) == GenerationDefaults()
    config = {
        **STATED,
        "max_new_tokens": 90,
        "do_sample": True,
        "eos_token_id": [1, 2],
        "transformers_version": "5.0",
    }
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    found = generation_defaults(tmp_path, None)
    assert found == GenerationDefaults(**STATED, max_tokens=90, source="generation_config.json")
    assert str(found) == (
        "temperature 0.6, top_k 20, top_p 0.95, min_p 0.05, repetition_penalty 1.05, "
        "max_tokens 90 (generation_config.json)"
    )


def test_a_gguf_file_recommends_by_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_float32(gguf.Keys.General.SAMPLING_TEMP, 0.5)
    writer.add_int32(gguf.Keys.General.SAMPLING_TOP_K, 40)
    writer.add_float32(gguf.Keys.General.SAMPLING_PENALTY_REPEAT, 1.25)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert generation_defaults(path, read_header(path).metadata) == GenerationDefaults(
        temperature=0.5, top_k=40, repetition_penalty=1.25, source="GGUF metadata"
    )


def test_a_penalty_of_the_last_tokens_alone_is_refused() -> None:
    penalty = {"general.sampling.penalty_repeat": 1.25}
    last = "general.sampling.penalty_last_n"
    assert from_gguf_metadata({**penalty, last: -1}).repetition_penalty == 1.25
    assert from_gguf_metadata({last: 64}).stated() == {}
    with pytest.raises(ModelFileError, match=r"GGUF metadata.*generation_config none") as caught:
        from_gguf_metadata({**penalty, last: 64})
    assert caught.value.param == last


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
    params = from_generation_config({**STATED, "max_new_tokens": 9}).params()
    assert params == SamplingParams(**STATED, max_tokens=9)
    assert checked_params(params, vocab_size=100) == params
    names = {field.name for field in fields(GenerationDefaults)} - {"source"}
    assert names == NAMES <= {field.name for field in fields(SamplingParams)}


def test_what_is_given_wins_and_a_search_takes_no_filters() -> None:
    defaults = GenerationDefaults(**STATED, max_tokens=9)
    assert defaults.params(top_p=1.0, n=2) == SamplingParams(
        **{**STATED, "top_p": 1.0}, max_tokens=9, n=2
    )
    assert defaults.params(beam_width=4) == SamplingParams(beam_width=4, max_tokens=9)
    assert defaults.params(beam_width=None) == SamplingParams(**STATED, max_tokens=9)


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
        ("max_new_tokens", 0),
        ("max_new_tokens", 12.0),
        ("do_sample", 1),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=f"generation_config.json: {field}") as caught:
        from_generation_config({field: value})
    assert caught.value.param == field


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recommends")
    tiny_llama(path)
    config = {"temperature": 0.5, "top_k": 3, "max_new_tokens": 7}
    (path / "generation_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({}, SamplingParams(temperature=0.5, top_k=3, max_tokens=7)),
        ({"generation_config": "none"}, SamplingParams()),
    ],
)
def test_a_request_without_params_takes_them(
    folder: Path, option: dict[str, str], expected: SamplingParams
) -> None:
    engine = Desk(folder, **option).engine
    request = GenerateRequest(prompt_token_ids=[5, 6, 7])
    prepared = engine.prepare(request)
    assert checked_params(expected, vocab_size=256) == checked_params(
        replace(prepared.params, seed=None), vocab_size=256
    )
    assert prepared.limits.max_tokens == (expected.max_tokens or 512 - 3)
    own = replace(request, params=SamplingParams(top_k=5))
    assert engine.prepare(own).params.temperature == 1.0


def test_out_of_bounds_is_refused_at_the_start_unless_it_is_ignored(
    folder: Path, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text('{"temperature": 5}')
    with pytest.raises(ModelFileError, match="temperature must be a number from 0 to 2"):
        built(tmp_path, skip_tokenizer_init=True)
    ignored = built(tmp_path, skip_tokenizer_init=True, generation_config="none")
    assert ignored.info.defaults == GenerationDefaults()
