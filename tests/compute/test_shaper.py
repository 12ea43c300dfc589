"""Rules on tokens and penalties: against plain Python, against transformers, seat by seat."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.compute.choice import Draw
from octavo.compute.sampler import NONE_LEFT, sample
from octavo.compute.shaper import Shaper
from octavo.core.batch import Row
from octavo.core.request import Limits, Request
from octavo.core.sampling import SamplingParams

VOCAB = 40
SEATS = 4
CPU = torch.device("cpu")


def request_of(
    prompt: list[int],
    generated: list[int] | None = None,
    *,
    params: SamplingParams,
    stop_ids: frozenset[int] = frozenset(),
) -> Request:
    request = Request("r", prompt, limits=Limits(1000, stop_ids), sampling=params)
    request.tokens += generated or []
    return request


def row_of(request: Request, seat: int = 0) -> Row:
    end = len(request.tokens)
    return Row(request, seat, end - 1, end, end - 1, end - 1, (), True)


def params_of(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, seed=0, **fields)


def noise(rows: int, *, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def reference(logits: list[float], request: Request) -> list[float]:
    """The documented order, one token at a time."""
    params, tokens, n_prompt = request.sampling, request.tokens, request.n_prompt
    generated = tokens[n_prompt:]
    out = []
    for token, logit in enumerate(logits):
        if params.logit_bias and token in params.logit_bias:
            logit += params.logit_bias[token]
        if params.allowed_token_ids is not None and token not in params.allowed_token_ids:
            logit = -math.inf
        for word in params.bad_words:
            start = list(word[:-1])
            ended = generated[len(generated) - len(start) :] if start else []
            if word[-1] == token and ended == start and len(start) <= len(generated):
                logit = -math.inf
        if len(generated) < params.min_tokens and token in request.limits.stop_ids:
            logit = -math.inf
        if token in tokens:
            r = params.repetition_penalty
            logit = logit / r if logit > 0 else logit * r
        count = generated.count(token)
        logit -= params.frequency_penalty * count
        logit -= params.presence_penalty * (count > 0)
        out.append(logit)
    return out


def shaped_row(shaper: Shaper, request: Request, logits: torch.Tensor, seat: int = 0) -> Any:
    shaped = shaper.shape([row_of(request, seat)], logits)
    assert shaped is not None
    return shaped.logits[0]


def assert_close(got: torch.Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(got, torch.tensor(expected), atol=1e-4, rtol=1e-5)


TOKEN = st.integers(0, VOCAB - 1)
PARAMS = st.builds(
    params_of,
    presence_penalty=st.sampled_from([0.0, -2.0, 0.5, 2.0]),
    frequency_penalty=st.sampled_from([0.0, -1.0, 0.25, 2.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
    logit_bias=st.none() | st.dictionaries(TOKEN, st.integers(-100, 100), max_size=5),
    allowed_token_ids=st.none() | st.lists(TOKEN, min_size=1, max_size=12).map(tuple),
    bad_words=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=4
    ).map(tuple),
    min_tokens=st.integers(0, 6),
)
# Few different tokens, so that words of several tokens do come up.
TEXT = st.lists(st.integers(0, 3) | TOKEN, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(PARAMS, TEXT.filter(bool), TEXT, st.frozensets(TOKEN, max_size=3)),
        min_size=1,
        max_size=SEATS,
    ),
    seed=st.integers(0, 9),
)
def test_any_combination_is_the_reference_over_several_steps(rows: Any, seed: int) -> None:
    """Seats fill with requests that already have text, and these grow by a token a step."""
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    requests = [
        request_of(prompt, text, params=params, stop_ids=stops)
        for params, prompt, text, stops in rows
    ]
    rng = random.Random(seed)
    for step in range(3):
        logits = noise(len(requests), seed=seed * 10 + step)
        untouched = logits.clone()
        planned = [row_of(request, seat) for seat, request in enumerate(requests)]
        shaped = shaper.shape(planned, logits)
        assert torch.equal(logits, untouched)
        changed = {} if shaped is None else dict(zip(shaped.rows, shaped.logits, strict=True))
        for number, request in enumerate(requests):
            expected = reference(logits[number].tolist(), request)
            assert_close(changed.get(number, logits[number]), expected)
            request.tokens.append(rng.randrange(4))


def test_rows_that_ask_for_nothing_are_left_out() -> None:
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    plain = request_of([1, 2], params=params_of())
    asking = request_of([1, 2], params=params_of(presence_penalty=1.0))
    assert shaper.shape([row_of(plain)], noise(1)) is None
    shaped = shaper.shape([row_of(plain, 0), row_of(asking, 1), row_of(plain, 2)], noise(3))
    assert shaped is not None
    assert shaped.rows == [1]


@pytest.mark.parametrize("vacated", [True, False])
def test_a_seat_that_changes_hands_starts_anew(vacated: bool) -> None:
    """Given up and taken in one batch; told or not, another request is another owner."""
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    params = params_of(
        frequency_penalty=1.0, repetition_penalty=1.5, logit_bias={3: 5.0}, bad_words=((7,),)
    )
    first = request_of([1, 2], [5, 5, 6], params=params)
    shaped_row(shaper, first, noise(1))
    if vacated:
        shaper.vacate([0])
    heir_params = params_of(frequency_penalty=0.5, logit_bias={4: -5.0})
    heir = request_of([8], [9], params=heir_params)
    logits = noise(1, seed=2)
    assert_close(shaped_row(shaper, heir, logits), reference(logits[0].tolist(), heir))


def test_a_request_that_comes_back_counts_each_token_once() -> None:
    """Preempted, it takes whatever seat is free, perhaps its own, and has all its tokens."""
    params = params_of(frequency_penalty=1.0, presence_penalty=0.5, min_tokens=2)
    for seat in (0, 1):
        shaper = Shaper(SEATS, VOCAB, device=CPU)
        request = request_of([1, 2], [5, 5], params=params)
        shaped_row(shaper, request, noise(1))
        request.tokens += [5, 6]
        shaped_row(shaper, request, noise(1))
        shaper.vacate([0])
        logits = noise(1, seed=3)
        assert_close(
            shaped_row(shaper, request, logits, seat), reference(logits[0].tolist(), request)
        )


def test_a_step_that_is_planned_again_counts_nothing_twice() -> None:
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    request = request_of([1], [5, 6, 5], params=params_of(frequency_penalty=2.0))
    logits = noise(1)
    first, again = (shaped_row(shaper, request, logits).clone() for _ in range(2))
    assert torch.equal(first, again)
    request.tokens += [5, 7, 7]  # several tokens in one step
    assert_close(shaped_row(shaper, request, logits), reference(logits[0].tolist(), request))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    kinds = [
        {"presence_penalty": 1.0},
        {"logit_bias": {5: 3.0}, "repetition_penalty": 1.2},
        {},
        {"allowed_token_ids": tuple(range(30)), "frequency_penalty": 0.7},
    ]
    requests = [
        request_of([1, 2], [3, 3, i], params=replace(params_of(**kind), temperature=2.0, seed=i))
        for i, kind in enumerate(kinds)
    ]
    logits = noise(4)

    def tokens(which: list[int], position: int) -> list[int]:
        shaper = Shaper(SEATS, VOCAB, device=CPU)
        rows = [row_of(requests[i], seat) for seat, i in enumerate(which)]
        draws = [Draw(requests[i].sampling, 0, position) for i in which]
        part = logits[which]
        results = sample(part, draws, shaped=shaper.shape(rows, part))
        return [result.tokens[0] for result in results]

    for position in range(10):
        together = tokens([0, 1, 2, 3], position)
        assert together == [tokens([i], position)[0] for i in range(4)]
        assert tokens([3, 1, 0, 2], position) == [together[i] for i in (3, 1, 0, 2)]


def test_greedy_ties_go_to_the_lowest_token_also_after_penalties() -> None:
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    logits = torch.zeros(1, VOCAB)
    logits[0, 30] = 1.0
    request = request_of([1], [30], params=params_of(presence_penalty=1.0))
    results = sample(
        logits, [Draw(request.sampling, 0, 2)], shaped=shaper.shape([row_of(request)], logits)
    )
    assert results[0].tokens == (0,)


def test_scores_are_of_the_logits_before_any_rule() -> None:
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    request = request_of([1], params=params_of(allowed_token_ids=(7,), logprobs=2))
    logits = noise(1)
    draws = [Draw(request.sampling, 0, 1)]
    (result,) = sample(logits, draws, shaped=shaper.shape([row_of(request)], logits))
    assert result.tokens == (7,)
    logprobs = logits[0].double().log_softmax(-1)
    scores = result.scores.generated[0]
    assert scores.chosen[0] == pytest.approx(float(logprobs[7]), abs=1e-5)
    assert scores.chosen[1] == 1 + int((logprobs > logprobs[7]).sum())
    assert scores.top[0][0] == int(logprobs.argmax())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_any_token_left_is_its_own_error(temperature: float) -> None:
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    hopeless = params_of(allowed_token_ids=(5,), bad_words=((5,),))
    fine = params_of(allowed_token_ids=(6,))
    requests = [
        request_of([1], params=replace(each, temperature=temperature)) for each in (hopeless, fine)
    ]
    logits = noise(2)
    shaped = shaper.shape([row_of(each, seat) for seat, each in enumerate(requests)], logits)
    results = sample(logits, [Draw(each.sampling, 0, 1) for each in requests], shaped=shaped)
    assert (results[0].error, results[1].tokens) == (NONE_LEFT, (6,))


@pytest.mark.parametrize(
    "filters", [{}, {"top_p": 0.9}, {"top_k": 3}, {"top_k": 600, "top_p": 0.99}, {"min_p": 0.1}]
)
def test_what_is_forbidden_is_never_sampled(filters: dict[str, Any]) -> None:
    vocab = 1000
    shaper = Shaper(SEATS, vocab, device=CPU)
    allowed = (3, 500, 999)
    request = request_of([1], params=SamplingParams(seed=1, allowed_token_ids=allowed, **filters))
    logits = noise(1, vocab=vocab) * 0.2
    shaped = shaper.shape([row_of(request)], logits)
    seen = {
        sample(logits, [Draw(request.sampling, 0, position)], shaped=shaped)[0].tokens[0]
        for position in range(60)
    }
    assert seen == set(allowed)


def test_a_bad_word_does_not_reach_back_into_the_prompt() -> None:
    params = params_of(bad_words=((6, 7), (5, 6, 8), (6, 9)))
    shaper = Shaper(SEATS, VOCAB, device=CPU)
    request = request_of([5], params=params)
    forbidden = []
    for token in (6, 5, 6, 3):
        found = shaped_row(shaper, request, noise(1))
        forbidden.append(found.isinf().nonzero().flatten().tolist())
        request.tokens.append(token)
    assert forbidden == [[], [7, 9], [], [7, 8, 9]]
    at_the_prompts_end = request_of([5, 6], params=params)
    assert not shaped_row(shaper, at_the_prompts_end, noise(1)).isinf().any()


def test_tokens_that_only_the_tokenizer_knows_are_no_matter() -> None:
    """A tokenizer may have more tokens than the model has logits."""
    params = params_of(min_tokens=3, bad_words=((VOCAB,), (1, VOCAB + 5), (4,)))
    stops = frozenset({2, VOCAB, VOCAB + 1})
    request = request_of([9], [1], params=params, stop_ids=stops)
    got = shaped_row(Shaper(SEATS, VOCAB, device=CPU), request, noise(1))
    assert got.isinf().nonzero().flatten().tolist() == [2, 4]


def test_transformers_processors_agree() -> None:
    """Where they do the same: repetition, biases, bad words, a minimum of new tokens."""
    from transformers.generation import logits_process as theirs

    prompt, generated = [4, 9, 9, 12], [17, 4, 20]
    ids = torch.tensor([prompt + generated])
    logits = noise(1, seed=8)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"repetition_penalty": 1.7}, theirs.RepetitionPenaltyLogitsProcessor(1.7)),
        ({"repetition_penalty": 0.6}, theirs.RepetitionPenaltyLogitsProcessor(0.6)),
        (
            {"logit_bias": {3: 4.5, 4: -7.0}},
            theirs.SequenceBiasLogitsProcessor([[[3], 4.5], [[4], -7.0]]),
        ),
        (
            {"bad_words": ((4, 20, 31), (20, 32), (17, 20, 33), (34,))},
            theirs.NoBadWordsLogitsProcessor([[4, 20, 31], [20, 32], [17, 20, 33], [34]]),
        ),
        (
            {"min_tokens": 4},
            theirs.MinNewTokensLengthLogitsProcessor(len(prompt), 4, eos_token_id=[2, 3]),
        ),
    ]
    for fields, processor in cases:
        request = request_of(
            prompt, generated, params=params_of(**fields), stop_ids=frozenset({2, 3})
        )
        got = shaped_row(Shaper(SEATS, VOCAB, device=CPU), request, logits)
        torch.testing.assert_close(got, processor(ids, logits.clone())[0], atol=1e-5, rtol=1e-5)
