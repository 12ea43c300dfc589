"""The engine on the native kernels from float weights: as stored, and rounded at load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.native.float_grids import round_matrix
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError, ModelFileError
from octavo.engine.build import build
from tests.checkpoints import save_folder, tiny_llama, write_gguf
from tests.compute.native.test_float_grids import values
from tests.engine.test_native import NATIVE, PROMPTS, assert_bits, assert_near
from tests.engine.tiny import GREEDY, Desk, prompt
from tests.families import FAMILIES, tiny_family

FEW = replace(GREEDY, max_tokens=8)
BUSY: dict[str, Any] = {"threads": 2, "max_num_batched_tokens": 48, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("floats")
    tiny_llama(folder)
    return folder


def angle(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(got, wanted, dim=-1).min())


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_weights_rounded_at_load_give_their_own_bits_in_any_company(
    folder: Path, quantization: str
) -> None:
    options = {**NATIVE, "quantization": quantization}
    alone = Desk(folder, enable_prefix_caching=False, **options)
    expected = [alone.answer(each)[0] for each in PROMPTS]
    desk = Desk(folder, **{**options, **BUSY})
    for _ in ("cold", "warm"):
        for got, wanted in zip(desk.answer(*PROMPTS), expected, strict=True):
            assert_bits(got, wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_rounded_at_load_stays_near_its_floats(tmp_path: Path, family: str) -> None:
    tiny_family(tmp_path, family)
    oracle = Desk(tmp_path, attention_backend="torch")
    eight = Desk(tmp_path, **NATIVE, quantization="int8")
    four = Desk(tmp_path, **NATIVE, quantization="int4")
    for tokens in (prompt(5, seed=5), prompt(67, seed=67)):
        wanted = oracle.answer(tokens, params=FEW)[0][1][:1]
        found = eight.answer(tokens, params=FEW)[0][1][:1]
        assert_near(found, wanted)
        coarse = four.answer(tokens, params=FEW)[0][1][:1]
        assert 0.8 < angle(coarse, wanted) < angle(found, wanted)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_answers_are_those_of_the_rounded_weights(tmp_path: Path, quantization: str) -> None:
    """Plain torch on a copy of the model whose matrices have the rounded values."""
    model = tiny_llama(tmp_path / "m", tie=False)
    desk = Desk(tmp_path / "m", **NATIVE, quantization=quantization)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                kind = quantization if ".layers." in name else "int8"
                parameter.copy_(values(round_matrix(parameter, kind, name=name)))
    (tmp_path / "rounded").mkdir()
    save_folder(tmp_path / "rounded", model)
    oracle = Desk(tmp_path / "rounded", attention_backend="torch")
    for tokens in PROMPTS[3:6]:
        wanted = oracle.answer(tokens, params=FEW)[0][1][:1]
        assert_near(desk.answer(tokens, params=FEW)[0][1][:1], wanted)


@pytest.mark.parametrize("stored", ["F16", "BF16"])
def test_float_matrices_of_a_gguf_file_are_rounded_too(tmp_path: Path, stored: str) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_llama(tmp_path / "folder"), quant=stored)
    oracle = Desk(tmp_path / "m.gguf", attention_backend="torch")
    desk = Desk(tmp_path / "m.gguf", **NATIVE, quantization="int8")
    wanted = oracle.answer(PROMPTS[3], params=FEW)[0][1][:1]
    assert_near(desk.answer(PROMPTS[3], params=FEW)[0][1][:1], wanted)


def test_rounded_weights_share_no_blocks_with_others(folder: Path) -> None:
    def root(quantization: str) -> bytes | None:
        desk = Desk(folder, **NATIVE, quantization=quantization)
        return desk.submit(prompt(20)).requests[0].chain.root

    assert root("int8") == root("int8") != root("int4")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention_backend": "torch"}, "quantization int8 needs the native kernels, and plain"),
        ({"block_size": 8}, "block_size 8"),
        (
            {"attention_backend": "auto", "block_size": 8},
            "native kernels, and block_size 8",
        ),
        ({"dtype": "bfloat16"}, "dtype bfloat16"),
        ({"quantization": "int3"}, "quantization must be one of int8, int4"),
    ],
)
def test_rounding_that_cannot_be_is_refused(
    folder: Path, options: dict[str, Any], reason: str
) -> None:
    options = {**NATIVE, "skip_tokenizer_init": True, "quantization": "int8", **options}
    with pytest.raises(ConfigError, match=reason):
        build(EngineConfig.of(str(folder), **options))


def test_quantised_files_are_not_rounded_again(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_llama(tmp_path / "folder"), quant="Q8_0")
    with pytest.raises(ConfigError, match="for float weights, and these are stored as Q8_0"):
        Desk(tmp_path / "m.gguf", **NATIVE, quantization="int4")


def test_rows_that_are_no_multiple_of_32_are_refused_by_name(tmp_path: Path) -> None:
    tiny_llama(tmp_path, intermediate_size=72)
    with pytest.raises(ConfigError, match="intermediate_size 72 is not a multiple of 32"):
        Desk(tmp_path, **NATIVE, quantization="int8")


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = float("nan")
    save_folder(tmp_path, model)
    with pytest.raises(ModelFileError, match=r"tensor model\.layers\.1\.mlp\.down_proj\.weight"):
        Desk(tmp_path, **NATIVE, quantization="int8")
