"""Guessing by lookup changes how many steps an answer takes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from tests.checkpoints import tiny_llama

# A random model soon repeats itself, which is what lookup lives on.
PROMPTS = [[5, 6, 7, 8] * 10, [9, 3, 9, 3, 9, 3, 1], list(range(40, 75)), [11] * 33]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speculation")
    tiny_llama(path, seed=3)
    return path


@pytest.fixture(scope="module", params=[True, False], ids=["cache", "no cache"])
def pair(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[LLM, LLM]]:
    """The same engine without and with guesses."""
    options = {
        "skip_tokenizer_init": True,
        "threads": 1,
        "num_blocks": 200,
        "enable_prefix_caching": request.param,
    }
    with (
        LLM(str(folder), **options) as plain,
        LLM(str(folder), speculative_method="lookup", **options) as guessing,
    ):
        yield plain, guessing


def answers(llm: LLM, params: SamplingParams) -> list[list[list[int]]]:
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    outputs = llm.generate(prompts, params)
    return [[choice.token_ids for choice in output.outputs] for output in outputs]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0, max_tokens=64),
        SamplingParams(temperature=0.7, top_k=4, seed=1, max_tokens=64),
        SamplingParams(temperature=0.3, top_p=0.9, seed=2, max_tokens=64, n=3),
    ],
    ids=["greedy", "top_k", "n=3"],
)
def test_same_tokens_as_without(pair: tuple[LLM, LLM], params: SamplingParams) -> None:
    plain, guessing = pair
    assert answers(guessing, params) == answers(plain, params)
    assert guessing.stats().held_blocks == 0


def test_guesses_are_made_and_save_steps(pair: tuple[LLM, LLM]) -> None:
    plain, guessing = pair
    params = SamplingParams(temperature=0, max_tokens=96)
    before = [llm.stats() for llm in pair]
    answers(plain, params), answers(guessing, params)
    after = [llm.stats() for llm in pair]
    steps = [b.steps - a.steps for a, b in zip(before, after, strict=True)]
    accepted = after[1].accepted_tokens - before[1].accepted_tokens
    drafted = after[1].drafted_tokens - before[1].drafted_tokens
    assert 0 < accepted <= drafted
    assert steps[1] < steps[0]
    assert after[0].drafted_tokens == 0


def test_logprobs_are_those_of_each_token(pair: tuple[LLM, LLM]) -> None:
    plain, guessing = pair
    params = SamplingParams(temperature=0, max_tokens=48, logprobs=3)
    (one,) = plain.generate([{"prompt_token_ids": PROMPTS[0]}], params)
    (two,) = guessing.generate([{"prompt_token_ids": PROMPTS[0]}], params)
    ours, theirs = two.outputs[0], one.outputs[0]
    assert ours.logprobs is not None
    assert theirs.logprobs is not None
    assert len(ours.logprobs) == len(ours.token_ids) == len(theirs.logprobs)
    for token, mine, other in zip(ours.token_ids, ours.logprobs, theirs.logprobs, strict=True):
        assert next(iter(mine)) == token
        assert mine.keys() == other.keys()
        assert mine[token].logprob == pytest.approx(other[token].logprob, abs=1e-3)


def test_a_stop_token_among_accepted_guesses_ends_there(pair: tuple[LLM, LLM]) -> None:
    plain = pair[0]
    free = SamplingParams(temperature=0, max_tokens=64)
    (answer,) = plain.generate([{"prompt_token_ids": PROMPTS[0]}], free)
    stop = answer.outputs[0].token_ids[20]
    params = SamplingParams(temperature=0, max_tokens=64, stop_token_ids=[stop])
    outputs = [llm.generate([{"prompt_token_ids": PROMPTS[0]}], params)[0] for llm in pair]
    assert outputs[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids
    assert outputs[1].outputs[0].token_ids[-1] == stop
    assert outputs[1].receipt is not None
    assert outputs[1].receipt.tokens == len(PROMPTS[0]) + len(outputs[1].outputs[0].token_ids)


def test_what_guesses_leave_in_the_cache_serves_the_next_turn(pair: tuple[LLM, LLM]) -> None:
    """A guess that was wrong has been computed and must not be found by anyone."""
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
    turns: list[list[list[int]]] = []
    for llm in pair:
        prompts = [list(ids) for ids in PROMPTS]
        wrong = llm.stats().drafted_tokens - llm.stats().accepted_tokens
        for more in ([7, 8, 5], [9, 3]):
            outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)
            prompts = [
                [*ids, *output.outputs[0].token_ids, *more]
                for ids, output in zip(prompts, outputs, strict=True)
            ]
        turns.append(prompts)
        wrong = llm.stats().drafted_tokens - llm.stats().accepted_tokens - wrong
        assert (wrong > 0) == (llm is pair[1])
    assert turns[0] == turns[1]


def test_nothing_is_guessed_where_earlier_tokens_shape_the_next(pair: tuple[LLM, LLM]) -> None:
    plain, guessing = pair
    params = SamplingParams(temperature=0, max_tokens=32, presence_penalty=0.5)
    drafted = guessing.stats().drafted_tokens
    assert answers(guessing, params) == answers(plain, params)
    assert guessing.stats().drafted_tokens == drafted


def test_small_pool_with_preemption(folder: Path) -> None:
    options = {"skip_tokenizer_init": True, "threads": 1, "num_blocks": 14}
    params = SamplingParams(temperature=0, max_tokens=64)
    with LLM(str(folder), **options) as plain:
        expected = answers(plain, params)
    with LLM(str(folder), speculative_method="lookup", **options) as guessing:
        assert answers(guessing, params) == expected
        assert guessing.stats().accepted_tokens > 0
        assert guessing.stats().held_blocks == 0
