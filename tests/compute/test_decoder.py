"""The decoder against transformers on tiny random checkpoints, and what loading refuses."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.families import family_of
from octavo.compute.load import load_decoder
from octavo.compute.weights import WeightSource, open_source
from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig
from tests.checkpoints import tiny_llama
from tests.compute.models import Rig, load_tiny

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {"tie": True},
    "untied": {"tie": False},
    "biases": {"tie": False, "attention_bias": True, "mlp_bias": True},
    "llama3_rope": {"rope_parameters": LLAMA3},
    "one_kv_head": {"num_key_value_heads": 1},
    "wide_heads": {"head_dim": 32},
    "nine_three": {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3},
}
N_GREEDY = 64


def prompt_tokens(n_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 256) for _ in range(n_tokens)]


def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


def check_against(model: Any, rig: Rig, tokens: list[int], *, name: str, n_prompt: int) -> None:
    """Every sampled row's logits, and so each greedy token, are transformers'."""
    wanted = reference_logits(model, tokens[:-1])[n_prompt - 1 :]
    torch.testing.assert_close(torch.stack(rig.logits[name]), wanted, atol=1e-3, rtol=1e-3)
    assert tokens[n_prompt:] == wanted.argmax(-1).tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_greedy_tokens_match_transformers(variant: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path, **VARIANTS[variant])
    rig = Rig(load_tiny(tmp_path))
    request = rig.steps.request(prompt_tokens(37))
    rig.finish(request, N_GREEDY)
    check_against(model, rig, request.tokens, name="r", n_prompt=37)


@pytest.mark.parametrize("chunks", [[5, 37], [16, 32, 37], [1, 2, 36, 37], [36, 37]])
def test_chunks_beside_decoding_rows_change_nothing(chunks: list[int], tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    rig = Rig(load_tiny(tmp_path), block_tokens=8)
    others = [rig.steps.request(prompt_tokens(n, n), name=f"o{n}") for n in (3, 8, 20)]
    rig.run([rig.steps.row(other) for other in others])
    request = rig.steps.request(prompt_tokens(37))
    for end in chunks:
        rows = [rig.steps.row(other) for other in others]
        rows.insert(1, rig.steps.row(request, end))
        rig.run(rows)
    for _ in range(20):
        rig.run([rig.steps.row(each) for each in (*others, request)])
    check_against(model, rig, request.tokens, name="r", n_prompt=37)
    for other in others:
        n_prompt = int(other.id[1:])
        check_against(model, rig, other.tokens, name=other.id, n_prompt=n_prompt)


def test_bfloat16_stays_close(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    rig = Rig(load_tiny(tmp_path, torch.bfloat16))
    request = rig.steps.request(prompt_tokens(40))
    rig.finish(request, 1)
    wanted = reference_logits(model, request.tokens[:-1])[-1]
    assert rig.logits["r"][0].dtype == torch.float32
    assert (rig.logits["r"][0] - wanted).abs().max() < 0.05 * wanted.abs().max()


class Changed:
    """A source whose stream differs from what its headers say."""

    def __init__(self, source: WeightSource, tensors: list[tuple[str, torch.Tensor]]) -> None:
        self._source = source
        self._tensors = tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._tensors


def test_progress_counts_every_tensor(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    source = open_source(tmp_path)
    seen: list[tuple[int, int]] = []
    load_decoder(source, dtype=torch.float32, progress=lambda *step: seen.append(step))
    total = len(source.names())
    assert seen == [(i, total) for i in range(1, total + 1)]


def test_a_stream_that_breaks_its_word_is_refused(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    source = open_source(tmp_path)
    good = list(source.tensors())
    name, value = good[3]
    for bad, told in (
        (good[:-1], "1 announced weights never came: model"),
        ([*good, good[0]], "came twice or was not announced"),
        ([("model.layers.0.self_attn.qkv_proj.weight", value), *good], "qkv_proj.*not announced"),
        ([(name, value[:-1]) if n == name else (n, v) for n, v in good], f"weight {name} must be"),
        ([(name, value.int()) if n == name else (n, v) for n, v in good], f"weight {name} must be"),
    ):
        with pytest.raises(ModelFileError, match=told):
            load_decoder(Changed(source, bad), dtype=torch.float32)


def test_merged_matrices_are_the_parts_in_order(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path, attention_bias=True)
    layer = load_tiny(tmp_path).weights.layers[1]
    theirs = model.model.layers[1]
    attention, mlp = theirs.self_attn, theirs.mlp
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    assert torch.equal(layer.qkv, torch.cat([part.weight for part in parts]))
    assert layer.qkv_bias is not None
    assert torch.equal(layer.qkv_bias, torch.cat([part.bias for part in parts]))
    assert torch.equal(layer.gate_up, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]))


def test_unknown_families_and_flags_are_refused_by_name(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    config: ModelConfig = open_source(tmp_path).config()
    with pytest.raises(ModelFileError, match="'gpt_odd' is not supported; known are llama, mist"):
        family_of(dataclasses.replace(config, family="gpt_odd"))
    with pytest.raises(ModelFileError, match="a mistral model has no such biases, yet attention"):
        family_of(dataclasses.replace(config, family="mistral", attention_bias=True))
