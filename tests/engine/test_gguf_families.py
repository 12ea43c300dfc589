"""GGUF files of every architecture: the folder's own numbers, and transformers' answers."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.weights import open_source
from tests.checkpoints import tiny_llama, write_gguf
from tests.engine.tiny import GREEDY, Desk, assert_same, prompt
from tests.families import GGUF_FAMILIES, tiny_family, write_family_gguf

# What a GGUF file cannot say: scores are scaled by head_dim, biases are told by the directory.
SAYABLE: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3": {"query_pre_attn_scalar": 32},
}


@pytest.fixture(params=GGUF_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(tmp_path: Path, family: str) -> Any:
    """The model, saved in both forms under `tmp_path`."""
    model = tiny_family(tmp_path / "folder", family, **SAYABLE.get(family, {}))
    write_family_gguf(tmp_path / "m.gguf", model, arch=family)
    return model


def test_the_file_and_the_folder_are_one_model(tmp_path: Path, model: Any, family: str) -> None:
    file, folder = open_source(tmp_path / "m.gguf"), open_source(tmp_path / "folder")
    offset = 1.0 if family.startswith("gemma") else 0.0
    config = dataclasses.replace(file.config(), norm_offset=offset)
    if offset:
        config = dataclasses.replace(config, attention_scale=32**-0.5)
    assert config == folder.config()
    theirs = dict(folder.tensors())
    for name, value in file.tensors():
        wanted = theirs.pop(name)
        assert torch.equal(value, wanted + offset if "norm" in name else wanted), name
    assert not theirs


def test_transformers_reads_the_same_tensors(tmp_path: Path, model: Any, family: str) -> None:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    read = load_gguf_checkpoint(
        str(tmp_path / "m.gguf"), return_tensors=True, model_to_load=type(model)(model.config)
    )
    offset = 1.0 if family.startswith("gemma") else 0.0
    ours = dict(open_source(tmp_path / "m.gguf").tensors())
    for name, value in ours.items():
        theirs = torch.as_tensor(read["tensors"][name])
        torch.testing.assert_close(value - offset if "norm" in name else value, theirs)


def test_answers_are_those_of_transformers(tmp_path: Path, model: Any) -> None:
    desk = Desk(tmp_path / "m.gguf", num_blocks=512)
    tokens = prompt(67, seed=8)
    for _ in ("cold", "warm"):
        answer = desk.answer(tokens, params=replace(GREEDY, max_tokens=64))[0]
        with torch.inference_mode():
            logits = model(torch.tensor([[*tokens, *answer[0][:-1]]])).logits[0, 66:]
        assert_same(answer, (logits.argmax(-1).tolist(), logits))


def test_a_file_that_the_package_decodes_answers_as_its_weights_do(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "folder", hidden_size=256, intermediate_size=256)
    write_gguf(tmp_path / "m.gguf", model, quant="IQ2_XS")
    model.load_state_dict(dict(open_source(tmp_path / "m.gguf").tensors()), strict=False)
    tokens = prompt(40, seed=8)
    answer = Desk(tmp_path / "m.gguf").answer(tokens)[0]
    with torch.inference_mode():
        logits = model(torch.tensor([[*tokens, *answer[0][:-1]]])).logits[0, 39:]
    assert_same(answer, (logits.argmax(-1).tolist(), logits))
