"""Penalties, biases, forbidden words, minimum lengths and kept stops through the whole engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo import LLM, GenerateRequest, SamplingParams
from octavo.core.errors import RequestError, Unsupported
from octavo.engine.types import Completion
from tests.checkpoints import tiny_llama
from tests.engine.tiny import DEFAULTS, GREEDY, assert_empty, prompt, talking

LONG = replace(GREEDY, max_tokens=40)
KINDS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.4},
    {"presence_penalty": 1.5, "frequency_penalty": 0.7},
    {"frequency_penalty": -0.5, "logit_bias": {9: 3.0, 11: -100}},
    {"allowed_token_ids": list(range(5, 60)), "presence_penalty": 2.0, "logprobs": 2},
    {"bad_words": [[7], [20, 30]], "min_tokens": 5, "ignore_eos": False},
]
SEEDED = SamplingParams(temperature=1.1, top_p=0.95, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(tmp_path_factory.mktemp("talking"), folders["byte_level"])


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), **DEFAULTS) as opened:
        yield opened
        assert_empty(opened._engine)


def answer(llm: LLM, params: SamplingParams, tokens: list[int] | None = None) -> Completion:
    (output,) = llm.generate([prompt(20) if tokens is None else tokens], params)
    assert output.outputs[0].error is None
    return output.outputs[0]


def pieces(llm: LLM, params: SamplingParams) -> list[str]:
    request = GenerateRequest(prompt_token_ids=prompt(20), params=params)
    return [chunk.text for chunk in llm.stream(request)]


def test_repetition_penalty_generates_what_transformers_does(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path, tie=False, seed=5)
    tokens = prompt(37, seed=9)
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([tokens]), max_new_tokens=64, min_new_tokens=64, do_sample=False,
            repetition_penalty=1.3, pad_token_id=2, attention_mask=torch.ones(1, len(tokens)),
        )  # fmt: skip
    params = replace(GREEDY, max_tokens=64, repetition_penalty=1.3, ignore_eos=False,
                     min_tokens=64)  # fmt: skip
    with LLM(str(tmp_path), skip_tokenizer_init=True, **DEFAULTS) as llm:
        found = answer(llm, params, tokens).token_ids
        assert found == out[0, len(tokens) :].tolist()
        assert found != answer(llm, replace(params, repetition_penalty=1.0), tokens).token_ids


@pytest.mark.parametrize("seeded", [False, True])
def test_batched_preempted_and_forked_each_answers_as_alone(folder: Path, seeded: bool) -> None:
    base = replace(SEEDED, seed=4, n=2) if seeded else LONG
    params = [replace(base, **kind) for kind in KINDS] + [base]
    prompts = [prompt(30, seed=seed) for seed in range(len(params))]
    with LLM(str(folder), **DEFAULTS, enable_prefix_caching=False) as roomy:
        alone = [roomy.generate([p], each)[0] for p, each in zip(prompts, params, strict=True)]
    for options in ({}, {"num_blocks": 11, "max_num_seqs": 6, "max_num_batched_tokens": 32}):
        with LLM(str(folder), **{**DEFAULTS, **options}) as llm:
            together = llm.generate(prompts, params)
            assert bool(llm.stats().preemptions) == bool(options)
            assert_empty(llm._engine)
        for got, expected in zip(together, alone, strict=True):
            assert [c.token_ids for c in got.outputs] == [c.token_ids for c in expected.outputs]


def test_presence_penalty_at_its_bound_spreads_the_tokens(llm: LLM) -> None:
    plain = answer(llm, LONG).token_ids
    spread = answer(llm, replace(LONG, presence_penalty=2.0, frequency_penalty=2.0)).token_ids
    assert len(set(spread)) > len(set(plain))


def test_only_allowed_tokens_are_taken_and_their_ranks_are_the_models(llm: LLM) -> None:
    allowed = [50, 60, 70]
    choice = answer(llm, replace(SEEDED, seed=1, allowed_token_ids=allowed, logprobs=20))
    assert set(choice.token_ids) <= set(allowed)
    for token, position in zip(choice.token_ids, choice.logprobs or (), strict=True):
        assert next(iter(position)) == token
        assert {one.rank for one in position.values()} >= set(range(1, 21))


def test_a_bias_forces_and_bans(llm: LLM) -> None:
    assert set(answer(llm, replace(LONG, logit_bias={77: 100})).token_ids) == {77}
    first = answer(llm, LONG).token_ids[0]
    assert first not in answer(llm, replace(LONG, logit_bias={first: -100})).token_ids


def test_a_bad_word_of_several_tokens_is_stopped_at_its_last(llm: LLM) -> None:
    """Text forced to spell "hello world" again and again, but for the word that may not come."""
    tokenizer = llm._engine.tokenizer
    assert tokenizer is not None
    whole = answer(llm, LONG).text
    tokens = answer(llm, LONG).token_ids
    pairs = [tokens[i : i + 2] for i in range(len(tokens) - 1)]
    banned = pairs[3]
    found = answer(llm, replace(LONG, bad_words=[banned])).token_ids
    assert found[:4] == tokens[:4]
    assert banned not in [found[i : i + 2] for i in range(len(found) - 1)]
    assert banned[0] in found  # only its last token is kept out
    word = next(word for word in whole.split() if word.isascii() and len(word) > 1)
    assert word not in answer(llm, replace(LONG, bad_words=[word])).text.split()


def test_bad_words_do_not_reach_back_into_the_prompt(llm: LLM) -> None:
    tokens = prompt(20)
    first = answer(llm, LONG, tokens).token_ids[0]
    assert answer(llm, replace(LONG, bad_words=[[tokens[-1], first]])).token_ids[0] == first
    assert answer(llm, replace(LONG, bad_words=[[first]])).token_ids[0] != first


def test_no_end_comes_before_min_tokens(llm: LLM) -> None:
    plain = answer(llm, replace(LONG, ignore_eos=False, logit_bias={2: 100}))
    assert (plain.finish_reason, len(plain.token_ids)) == ("stop", 1)
    stop = answer(llm, replace(LONG, logit_bias={50: 100}, stop_token_ids=[50], min_tokens=6))
    assert 50 not in stop.token_ids[:6]
    assert (stop.token_ids[6], stop.finish_reason, stop.stop_reason) == (50, "stop", 50)


def test_stop_strings_are_not_looked_for_before_min_tokens(llm: LLM) -> None:
    params = replace(LONG, logit_bias={77: 100})
    text = answer(llm, params).text
    one = text[: len(text) // 40]
    assert one * 40 == text
    stopped = answer(llm, replace(params, stop=one, min_tokens=5))
    assert (stopped.text, len(stopped.token_ids)) == (one * 5, 6)
    across = answer(llm, replace(params, stop=one * 2, min_tokens=5))  # none begins before
    assert (across.text, len(across.token_ids)) == (one * 5, 7)


def test_a_kept_stop_string_ends_the_text(llm: LLM) -> None:
    text = answer(llm, LONG).text
    stop = text[10:14]
    params = replace(LONG, stop=stop, include_stop_str_in_output=True)
    choice = answer(llm, params)
    assert choice.text == text[: text.index(stop) + len(stop)]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    assert "".join(pieces(llm, params)) == choice.text
    without = answer(llm, replace(params, include_stop_str_in_output=False))
    assert without.text + stop == choice.text
    assert without.token_ids == choice.token_ids


def test_a_kept_stop_token_ends_the_text(llm: LLM) -> None:
    free = answer(llm, LONG)
    token = free.token_ids[7]
    params = replace(LONG, stop_token_ids=[token], stop=["never there, but held back for"])
    kept = replace(params, include_stop_str_in_output=True)
    with_it, without = answer(llm, kept), answer(llm, params)
    tokenizer = llm._engine.tokenizer
    assert tokenizer is not None
    assert with_it.token_ids == without.token_ids
    assert without.text == tokenizer.decode(without.token_ids[:-1])
    assert with_it.text == tokenizer.decode(with_it.token_ids)
    assert "".join(pieces(llm, kept)) == with_it.text


def test_when_no_token_is_left_that_request_ends_with_the_reason(llm: LLM) -> None:
    hopeless = replace(LONG, allowed_token_ids=[5], bad_words=[[5]])
    bad, good = llm.generate([prompt(20)] * 2, [hopeless, LONG])
    assert bad.outputs[0].finish_reason == "error"
    assert "allowed_token_ids" in (bad.outputs[0].error or "")
    assert good.outputs[0].token_ids == answer(llm, LONG).token_ids


def test_bad_words_as_text_need_a_tokenizer(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    with LLM(str(tmp_path), skip_tokenizer_init=True, **DEFAULTS) as llm:
        with pytest.raises(Unsupported) as caught:
            llm.generate([prompt(5)], replace(GREEDY, bad_words=["word"]))
        assert caught.value.param == "bad_words"
        assert answer(llm, replace(GREEDY, bad_words=[[5, 6]])).token_ids


def test_more_minimum_than_maximum_is_refused_with_both(llm: LLM) -> None:
    with pytest.raises(RequestError, match="min_tokens 9 is more than max_tokens 8") as caught:
        llm.generate([prompt(5)], replace(GREEDY, min_tokens=9, max_tokens=8))
    assert caught.value.param == "min_tokens"
