"""Mechanisms off: the same answers, more work. No front end knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.compute.recompute import Recompute
from octavo.core.ablations import Ablations
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError
from octavo.core.sampling import SamplingParams
from octavo.engine.build import build
from octavo.engine.llm import LLM
from tests.checkpoints import tiny_llama, write_gguf
from tests.engine.tiny import DEFAULTS, GREEDY, Desk, assert_same, built, prompt
from tests.families import GGUF_FAMILIES, tiny_family, write_family_gguf

PROMPTS = [prompt(length, seed=length) for length in (1, 16, 17, 150, 290)]
UNCACHED: dict[str, Any] = {"enable_prefix_caching": False}
SMALL: list[dict[str, Any]] = [
    {},
    {"max_num_batched_tokens": 64, "max_num_seqs": 3},
    {"num_blocks": 24, "max_num_batched_tokens": 48, "max_num_seqs": 4},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    tiny_llama(made)
    return made


@pytest.fixture(scope="module")
def native_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("native")
    model = tiny_llama(made / "m", hidden_size=64, intermediate_size=96)
    write_gguf(made / "m.gguf", model, quant="Q4_1")
    return made / "m.gguf"


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_without_a_kv_cache_the_answers_are_the_same(folder: Path, options: dict[str, Any]) -> None:
    expected = Desk(folder).answer(*PROMPTS)
    desk = Desk(folder, kv_cache=False, **UNCACHED, **options)
    for got, wanted in zip(desk.answer(*PROMPTS), expected, strict=True):
        assert_same(got, wanted)


def test_without_a_kv_cache_the_kernels_give_the_same_bits(native_file: Path) -> None:
    options = {"dtype": "auto", "attention_backend": "auto", **UNCACHED}
    small = {"max_num_batched_tokens": 64, "max_num_seqs": 3, "threads": 2}
    expected = Desk(native_file, **options).answer(*PROMPTS)
    found = Desk(native_file, kv_cache=False, **small, **options).answer(*PROMPTS)
    for got, wanted in zip(found, expected, strict=True):
        assert got[0] == wanted[0]
        torch.testing.assert_close(got[1], wanted[1], atol=1e-3, rtol=0)


def test_without_a_kv_cache_every_step_computes_the_whole_sequence(folder: Path) -> None:
    one = built(folder, skip_tokenizer_init=True, kv_cache=False, **UNCACHED)
    assert isinstance(one.runner, Recompute)
    desk = Desk.__new__(Desk)
    desk.engine, desk._logits = one.engine, {}
    desk.submit(PROMPTS[2], replace(GREEDY, max_tokens=5))
    desk.run()
    # After the prompt of 17 come four steps of one token each, behind 17, 18, 19 and 20.
    assert one.runner.recomputed_tokens == 17 + 18 + 19 + 20
    assert one.engine.stats().computed_tokens == 17 + 4


def test_speculation_and_choices_run_without_a_kv_cache(folder: Path) -> None:
    tokens = prompt(24, seed=3) * 4
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=16, ignore_eos=True, n=3)
    expected = choices(Desk(folder, **UNCACHED), tokens, params)
    desk = Desk(folder, kv_cache=False, speculative_method="lookup", **UNCACHED)
    assert choices(desk, tokens, params) == expected


def test_with_all_scores_at_once_the_answers_are_the_same(folder: Path) -> None:
    expected = Desk(folder).answer(*PROMPTS)
    options = {"attention_backend": "torch", "tiled_scores": False}
    for budget in (512, 64):
        desk = Desk(folder, max_num_batched_tokens=budget, max_num_seqs=8, **options)
        for got, wanted in zip(desk.answer(*PROMPTS), expected, strict=True):
            assert_same(got, wanted)


@pytest.mark.parametrize("arch", ["gemma3", "gemma2"])
def test_all_scores_at_once_keep_to_windows_and_caps(tmp_path: Path, arch: str) -> None:
    assert arch in GGUF_FAMILIES
    path = tmp_path / "m.gguf"
    write_family_gguf(path, tiny_family(tmp_path / "folder", arch), arch=arch, quant="Q8_0")
    options = {"attention_backend": "torch"}
    tokens = [prompt(n, seed=n) for n in (5, 150)]
    expected = Desk(path, **options).answer(*tokens)
    found = Desk(path, tiled_scores=False, max_num_batched_tokens=64, max_num_seqs=4, **options)
    for got, wanted in zip(found.answer(*tokens), expected, strict=True):
        assert_same(got, wanted)
    with pytest.raises(ConfigError, match="sliding windows"):
        Desk(path, kv_cache=False, **UNCACHED, **options)


def choices(desk: Desk, tokens: Sequence[int], params: SamplingParams) -> list[list[int]]:
    session = desk.submit(tokens, params)
    desk.run()
    return [each.tokens[len(tokens) :] for each in session.requests]


def shared_at_most(desk: Desk, tokens: Sequence[int], params: SamplingParams) -> int:
    """The most blocks that had several holders at once."""
    most = 0
    desk.submit(tokens, params)
    while desk.engine.busy:
        desk.engine.step()
        most = max(most, desk.engine.stats().shared_blocks)
    return most


@pytest.mark.parametrize("n_tokens", [32, 40])
def test_forks_that_copy_at_once_answer_the_same_and_share_nothing(
    folder: Path, n_tokens: int
) -> None:
    tokens = prompt(n_tokens, seed=1)
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=20, ignore_eos=True, n=4)
    sharing, copying = Desk(folder, **UNCACHED), Desk(folder, copy_on_write=False, **UNCACHED)
    assert choices(copying, tokens, params) == choices(sharing, tokens, params)
    partial = bool(n_tokens % 16)
    assert sharing.engine.stats().copied_blocks == 3 * partial
    assert copying.engine.stats().copied_blocks == 3 * (2 + partial)
    assert shared_at_most(sharing, tokens, params) == 2
    assert shared_at_most(copying, tokens, params) == 0


@pytest.mark.parametrize("num_blocks", [256, 14])
def test_beams_that_copy_at_once_answer_the_same(folder: Path, num_blocks: int) -> None:
    tokens = prompt(40, seed=1)
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, n=3, beam_width=3)
    found = []
    for options in ({}, {"copy_on_write": False}):
        every = {**DEFAULTS, "skip_tokenizer_init": True, **UNCACHED, **options}
        with LLM(str(folder), **{**every, "num_blocks": num_blocks}) as llm:
            (output,) = llm.generate([tokens], params)
            found.append([choice.token_ids for choice in output.outputs])
    assert found[0] == found[1]
    assert len(found[0]) == 3


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"kv_cache": False}, "enable_prefix_caching"),
        ({"copy_on_write": False}, "enable_prefix_caching"),
        ({"tiled_scores": False}, "attention_backend torch"),
        ({"kv_cache": 0}, "kv_cache must be bool"),
    ],
)
def test_what_would_measure_something_else_is_refused(
    folder: Path, options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(ConfigError, match=hint):
        build(EngineConfig.of(str(folder), **options))


def test_no_front_end_offers_them() -> None:
    offered = {option.name for option in EngineConfig.options()}
    assert not offered & set(Ablations.__slots__)
