"""Log-probabilities of the prompt: complete, told once, and the same whatever the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import octavo.compute.prompt_scores as prompt_scores
from octavo import LLM, SamplingParams
from octavo.core.batch import Batch, StepResult
from octavo.engine.types import GenerateRequest, Output
from tests.checkpoints import tiny_llama
from tests.engine.tiny import DEFAULTS, GREEDY, assert_empty, prompt

COUNT = 3
SCORED = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, prompt_logprobs=COUNT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def wanted(folder: Path) -> Any:
    """(tokens) -> the reference's log-softmax, float64 [tokens, vocab]."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def scores(tokens: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([list(tokens)])).logits[0].double().log_softmax(-1)

    return scores


def opened(folder: Path, **options: Any) -> LLM:
    return LLM(str(folder), **{**DEFAULTS, "skip_tokenizer_init": True, **options})


def assert_right(output: Output, logprobs: torch.Tensor, *, count: int = COUNT) -> None:
    tokens, found = output.prompt_token_ids, output.prompt_logprobs
    assert found is not None
    assert len(found) == len(tokens)
    assert found[0] is None
    for place, token in enumerate(tokens[1:]):
        row, position = logprobs[place], found[place + 1]
        assert position is not None
        assert next(iter(position)) == token
        assert position[token].rank == 1 + int((row > row[token]).sum())
        assert {one.rank for one in position.values()} >= set(range(1, count + 1))
        assert len(position) == count + (position[token].rank > count)
        for each, one in position.items():
            assert one.logprob == pytest.approx(float(row[each]), abs=1e-3)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"enable_prefix_caching": False},
    {"max_num_batched_tokens": 37, "max_num_seqs": 4},
    {"enable_chunked_prefill": False},
    {"block_size": 1, "num_blocks": 1024},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("n_tokens", [1, 2, 48, 150])
def test_cold_warm_and_in_chunks_they_are_the_references(
    folder: Path, wanted: Any, options: dict[str, Any], n_tokens: int
) -> None:
    tokens = prompt(n_tokens, seed=n_tokens)
    with opened(folder, **options) as llm:
        for warm in (False, True):
            (output,) = llm.generate([tokens], SCORED)
            assert_right(output, wanted(tokens))
            assert output.num_cached_tokens == 0, warm  # all of it was computed
        (plain,) = llm.generate([tokens], replace(SCORED, prompt_logprobs=None))
        assert plain.prompt_logprobs is None
        assert plain.outputs[0].token_ids == output.outputs[0].token_ids
        assert_empty(llm._engine)


def test_an_extension_of_a_cached_prompt_is_scored_whole(folder: Path, wanted: Any) -> None:
    tokens = prompt(80, seed=5)
    with opened(folder) as llm:
        llm.generate([tokens[:50]], replace(SCORED, prompt_logprobs=None))
        assert_right(llm.generate([tokens], SCORED)[0], wanted(tokens))


def test_together_with_others_each_gets_its_own(folder: Path, wanted: Any) -> None:
    prompts = [prompt(n, seed=n) for n in (5, 70, 33, 70)]
    params = [replace(SCORED, prompt_logprobs=count) for count in (3, 0, None, 20)]
    with opened(folder, max_num_batched_tokens=64, max_num_seqs=8) as llm:
        outputs = llm.generate(prompts, params)
    assert outputs[2].prompt_logprobs is None
    for i in (0, 1, 3):
        assert_right(outputs[i], wanted(prompts[i]), count=params[i].prompt_logprobs or 0)


def test_several_choices_share_the_scores_of_one_prefill(folder: Path, wanted: Any) -> None:
    tokens = prompt(60, seed=6)
    params = replace(SCORED, n=3, temperature=1.0, seed=2, logprobs=1)
    with opened(folder) as llm:
        for _ in range(2):  # cold, then warm: the followers need not wait for the leader
            (output,) = llm.generate([tokens], params)
            assert_right(output, wanted(tokens))
            assert [len(choice.logprobs or ()) for choice in output.outputs] == [4, 4, 4]


def test_across_preemptions_nothing_is_missing_or_told_twice(
    folder: Path, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better ranks arrive while prompts are half scored, and throw them out."""
    long = [{"prompt_token_ids": prompt(90, seed=seed), "priority": 5} for seed in range(2)]
    options = {"max_num_batched_tokens": 24, "max_num_seqs": 6, "enable_prefix_caching": False}
    with opened(folder, num_blocks=12, **options) as llm:
        engine, runner = llm._engine, llm._engine._loop._runner
        urgent = [prompt(100, seed=10 + seed) for seed in range(3)]
        scored_again: list[str] = []
        original = runner.run

        def run(batch: Batch) -> StepResult:
            half_way = [row for row in batch.rows if 0 < row.request.scored < row.request.n_prompt]
            scored_again.extend(
                row.request.id for row in half_way if row.start < row.request.scored
            )
            if half_way and urgent:
                request = GenerateRequest(prompt_token_ids=urgent.pop(), params=GREEDY)
                engine.submit(engine.prepare(request), lambda chunk: None)
            return original(batch)

        monkeypatch.setattr(runner, "run", run)
        outputs = llm.generate(long, SCORED)
        assert engine.stats().preemptions > 0
        assert scored_again, "none had to compute what was scored already"
        for each, output in zip(long, outputs, strict=True):
            assert output.outputs[0].error is None
            assert_right(output, wanted(each["prompt_token_ids"]))
        assert_empty(engine)


def test_logits_of_a_prompt_are_made_a_tile_at_a_time(
    folder: Path, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_scores, "TILE_ROWS", 7)
    prompts = [prompt(n, seed=n) for n in (5, 20, 33)]
    with opened(folder) as llm:
        decoder = llm._engine._loop._runner._executor._decoder  # type: ignore[attr-defined]
        sizes: list[int] = []
        original = decoder.logits

        def logits(hidden: torch.Tensor) -> torch.Tensor:
            sizes.append(len(hidden))
            return original(hidden)

        decoder.logits = logits
        outputs = llm.generate(prompts, replace(SCORED, max_tokens=1))
    assert max(sizes) == 7
    for output in outputs:
        assert_right(output, wanted(output.prompt_token_ids))


def test_broken_numbers_in_a_prompt_end_that_request_alone(tmp_path: Path) -> None:
    tiny_llama(tmp_path, tie=False)
    calm = [token % 255 for token in prompt(20, seed=1)]
    with opened(tmp_path) as llm:
        decoder = llm._engine._loop._runner._executor._decoder  # type: ignore[attr-defined]
        decoder.weights.embed[255] = torch.nan
        bad, good = llm.generate([[*calm, 255, 9], calm], SCORED)
        assert_empty(llm._engine)
    assert bad.outputs[0].finish_reason == "error"
    assert "not finite" in (bad.outputs[0].error or "")
    assert bad.prompt_logprobs is None
    assert good.outputs[0].error is None
    assert len(good.prompt_logprobs or ()) == 20
