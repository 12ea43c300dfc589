"""Bounds of a request: whatever the values, either they are within them or a field is named."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.errors import PromptTooLong, RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine import validate
from octavo.engine.beam_bounds import check_beams

VOCAB = 100
NAMES = [field.name for field in fields(SamplingParams)]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 130),
    st.floats(),
    st.floats(0, 2),
    st.text(max_size=5),
    st.binary(max_size=3),
)
VALUES = SCALARS | st.lists(SCALARS, max_size=20) | st.tuples(SCALARS) | st.dictionaries(SCALARS,
    SCALARS, max_size=2)  # fmt: skip


@given(values=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
def test_params_are_within_bounds_or_refused_by_name(values: dict[str, Any]) -> None:
    refusal: RequestError | None = None
    params = SamplingParams()
    try:
        params = validate.checked_params(SamplingParams(**values), vocab_size=VOCAB)
        check_beams(params, vocab_size=VOCAB)
    except RequestError as error:
        refusal = error
    if refusal is not None:
        assert refusal.param in values
        assert refusal.param in refusal.message
        return
    assert 0 <= params.temperature <= 2
    assert 0 < params.top_p <= 1
    assert 0 <= params.min_p <= 1
    assert 0 <= params.top_k <= 1 << 31
    assert 1 <= params.n <= validate.MAX_N
    assert params.beam_width is None or params.n <= params.beam_width <= 64
    assert -10 <= params.length_penalty <= 10
    assert params.early_stopping in (False, True, "never")
    assert params.max_tokens is None or params.max_tokens >= 1
    assert params.logprobs is None or 0 <= params.logprobs <= validate.MAX_LOGPROBS
    for value in (params.presence_penalty, params.frequency_penalty):
        assert -2 <= value <= 2
    assert 0.01 <= params.repetition_penalty <= 100
    for token, value in (params.logit_bias or {}).items():
        assert 0 <= token < VOCAB
        assert -100 <= value <= 100
    assert params.allowed_token_ids is None or params.allowed_token_ids
    assert all(0 <= each < VOCAB for each in params.allowed_token_ids or ())
    assert isinstance(params.bad_words, tuple)
    assert all(params.bad_words)
    assert 0 <= params.min_tokens <= (params.max_tokens or 1 << 31)
    assert params.prompt_logprobs is None or 0 <= params.prompt_logprobs <= validate.MAX_LOGPROBS
    assert isinstance(params.stop, tuple)
    assert all(params.stop)
    assert isinstance(params.stop_token_ids, tuple)
    assert all(0 <= each < VOCAB for each in params.stop_token_ids)
    assert not any(isinstance(value, float) and math.isnan(value) for value in values.values())


@given(ids=st.lists(SCALARS, max_size=4))
def test_prompt_ids_are_in_the_vocabulary_or_refused_by_place(ids: list[Any]) -> None:
    good = [type(each) is int and 0 <= each < VOCAB for each in ids]
    if all(good):
        validate.check_prompt_ids(ids, vocab_size=VOCAB)
        return
    with pytest.raises(RequestError) as caught:
        validate.check_prompt_ids(ids, vocab_size=VOCAB)
    assert f"prompt_token_ids[{good.index(False)}]" in caught.value.message


@pytest.mark.parametrize(("n_tokens", "error"), [(0, RequestError), (8, PromptTooLong)])
def test_a_prompt_is_there_and_leaves_room_for_one_token(
    n_tokens: int, error: type[RequestError]
) -> None:
    for fine in (1, 7):
        validate.check_length(fine, max_model_len=8)
    with pytest.raises(error):
        validate.check_length(n_tokens, max_model_len=8)


def test_top_k_minus_one_and_a_lone_stop_string_take_their_usual_form() -> None:
    params = validate.checked_params(SamplingParams(top_k=-1, stop="end"), vocab_size=VOCAB)
    assert params.top_k == 0
    assert params.stop == ("end",)
