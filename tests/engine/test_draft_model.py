"""A draft model changes how many steps an answer takes: not its tokens, nor their distribution."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo import LLM, SamplingParams
from octavo.core.draft_model import DraftModel
from octavo.core.errors import ConfigError
from octavo.engine.build import build
from tests.checkpoints import save_folder as save_model
from tests.checkpoints import tiny_llama, write_gguf
from tests.engine.tiny import DEFAULTS, EngineConfig, talking

pytestmark = pytest.mark.usefixtures("always_guess")

PROMPTS = [[5, 6, 7, 8] * 10, [9, 3, 9, 3, 9, 3, 1], list(range(40, 75)), [11] * 33]
OPTIONS: dict[str, Any] = {**DEFAULTS, "skip_tokenizer_init": True}
SETTINGS = {
    "greedy": SamplingParams(temperature=0, max_tokens=48),
    "plain": SamplingParams(temperature=1, seed=5, max_tokens=48),
    "top_k": SamplingParams(temperature=0.7, top_k=4, seed=1, max_tokens=48, logprobs=2),
    "n=3": SamplingParams(temperature=0.8, top_p=0.9, min_p=0.02, seed=2, max_tokens=48, n=3),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The target, itself as a file of another format, nearly it, and something else."""
    root = tmp_path_factory.mktemp("models")
    target = tiny_llama(root / "target", seed=3)
    write_gguf(root / "same.gguf", target)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for parameter in target.parameters():
            parameter.add_(0.005 * torch.randn_like(parameter))
    (root / "near").mkdir()
    save_model(root / "near", target)
    tiny_llama(root / "other", seed=4, num_hidden_layers=1, max_position_embeddings=64)
    tiny_llama(root / "smaller vocabulary", vocab_size=255)
    names = {"same": "same.gguf"}
    return {
        name: root / names.get(name, name)
        for name in ("target", "same", "near", "other", "smaller vocabulary")
    }


def engine(models: dict[str, Path], draft: str, **options: Any) -> LLM:
    return LLM(
        str(models["target"]),
        speculative_method="draft_model",
        speculative_model=str(models[draft]),
        speculative_max_seqs=16,
        **{**OPTIONS, **options},
    )


def drafter_of(llm: LLM) -> DraftModel:
    drafter = llm._built.engine.scheduler._drafter
    assert isinstance(drafter, DraftModel)
    return drafter


def answers(llm: LLM, params: SamplingParams) -> list[list[list[int]]]:
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in PROMPTS], params)
    return [[choice.token_ids for choice in output.outputs] for output in outputs]


@pytest.fixture(scope="module")
def expected(models: dict[str, Path]) -> dict[str, list[list[list[int]]]]:
    with LLM(str(models["target"]), **OPTIONS) as plain:
        return {name: answers(plain, params) for name, params in SETTINGS.items()}


@pytest.mark.parametrize("cached", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("draft", ["target", "same", "near", "other"])
def test_same_tokens_as_without(
    models: dict[str, Path], expected: dict[str, list[list[list[int]]]], draft: str, cached: bool
) -> None:
    with engine(models, draft, enable_prefix_caching=cached) as guessing:
        for name, params in SETTINGS.items():
            assert answers(guessing, params) == expected[name], name
        stats = guessing.stats()
        own = drafter_of(guessing).cache.pool
    assert stats.drafted_tokens > 100
    assert stats.held_blocks == 0
    assert own.available == own.total
    if draft in ("target", "same"):  # the same number leads equal distributions to equal tokens
        assert stats.accepted_tokens == stats.drafted_tokens
    else:
        assert 0 < stats.accepted_tokens < stats.drafted_tokens


def test_a_draft_that_is_nearly_the_model_is_mostly_right_when_sampling(
    models: dict[str, Path],
) -> None:
    """Independent samples of these two agree in 0.48 of all places, by common numbers in 0.66."""
    with engine(models, "near") as guessing:
        answers(guessing, SamplingParams(temperature=0.2, seed=1, max_tokens=96, ignore_eos=True))
        stats = guessing.stats()
    assert stats.drafted_by_place[0] > 100
    assert stats.accepted_by_place[0] > 0.55 * stats.drafted_by_place[0]
    assert len(stats.drafted_by_place) == 4


def test_distribution_is_the_models(tmp_path: Path) -> None:
    """Chi-square over the first three tokens, two of them drafted by an unrelated model."""
    target = tiny_llama(tmp_path / "target", vocab_size=4, seed=1)
    tiny_llama(tmp_path / "draft", vocab_size=4, seed=2, num_hidden_layers=1)
    prompt = [3, 1, 0, 3]
    seen: Counter[tuple[int, ...]] = Counter()
    with LLM(
        str(tmp_path / "target"),
        speculative_method="draft_model",
        speculative_model=str(tmp_path / "draft"),
        speculative_max_seqs=64,
        **OPTIONS,
    ) as llm:
        for seed in range(40):
            params = SamplingParams(seed=seed, n=64, max_tokens=4, ignore_eos=True)
            (output,) = llm.generate([{"prompt_token_ids": prompt}], params)
            seen.update(tuple(each.token_ids[:3]) for each in output.outputs)
        stats = llm.stats()
    assert 0.1 < stats.accepted_tokens / stats.drafted_tokens < 0.9
    assert stats.drafted_tokens > 3000
    chances = {}
    for three in itertools.product(range(4), repeat=3):
        with torch.inference_mode():
            logits = target(torch.tensor([[*prompt, *three]])).logits[0].double()
        logprobs = logits.log_softmax(-1)
        places = range(len(prompt) - 1, len(prompt) + 2)
        chances[three] = sum(
            logprobs[at, token].item() for at, token in zip(places, three, strict=True)
        )
    total = sum(seen.values())
    counts = [(seen[three], total * math.exp(chance)) for three, chance in chances.items()]
    rare = [each for each in counts if each[1] < 5]
    cells = [each for each in counts if each[1] >= 5]
    cells.append((sum(each[0] for each in rare), sum(each[1] for each in rare)))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in cells if wanted)
    freedom = len(cells) - 1
    assert freedom > 20
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_nothing_is_guessed_where_earlier_tokens_shape_the_next(models: dict[str, Path]) -> None:
    with engine(models, "target") as guessing:
        answers(guessing, SamplingParams(temperature=0, max_tokens=16, presence_penalty=0.5))
        answers(guessing, SamplingParams(beam_width=2, max_tokens=8, ignore_eos=True))
        assert guessing.stats().drafted_tokens == 0


@pytest.mark.parametrize("draft_blocks", [2, 9, 200])
def test_small_pools_and_preemption(
    models: dict[str, Path], expected: dict[str, list[list[list[int]]]], draft_blocks: int
) -> None:
    with engine(models, "near", num_blocks=14, speculative_num_blocks=draft_blocks) as guessing:
        for name in ("greedy", "plain"):
            assert answers(guessing, SETTINGS[name]) == expected[name]
        drafter, stats = drafter_of(guessing), guessing.stats()
    drafter.check()
    assert drafter.cache.pool.available == drafter.cache.pool.total == draft_blocks
    assert stats.preemptions > 0
    assert stats.accepted_tokens > 0 or draft_blocks == 2


def test_receipts_and_info_tell_of_it(models: dict[str, Path]) -> None:
    with engine(models, "target") as guessing:
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
        (output,) = guessing.generate([{"prompt_token_ids": PROMPTS[0]}], params)
        info = guessing.info
    assert output.receipt is not None
    assert output.receipt.accepted == output.receipt.drafted > 20
    assert "draft_model" in info.speculation_note
    assert "256 blocks" in info.speculation_note


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"speculative_method": "draft_model"}, "speculative_model", "needs speculative_model"),
        ({"speculative_model": "x"}, "speculative_model", "needs speculative_method"),
        (
            {"speculative_method": "lookup", "speculative_num_blocks": 9},
            "speculative_num_blocks",
            "needs speculative_method",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        EngineConfig.of("m", **options)
    assert caught.value.param == param


def test_another_vocabulary_is_refused(
    models: dict[str, Path], folders: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="255 tokens in its vocabulary and the model has 256"):
        engine(models, "smaller vocabulary")
    one = talking(tmp_path / "one", folders["byte_level"], vocab_size=600)
    two = talking(tmp_path / "two", folders["sentencepiece"], vocab_size=600)
    draft = {"speculative_method": "draft_model", "num_blocks": 50, "dtype": "float32"}
    with pytest.raises(ConfigError, match="token 0 is not the same text"):
        build(EngineConfig.of(str(one), speculative_model=str(two), **draft))
    same = talking(tmp_path / "same", folders["byte_level"], vocab_size=600)
    build(EngineConfig.of(str(one), speculative_model=str(same), **draft))
