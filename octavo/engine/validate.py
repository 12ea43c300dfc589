"""The bounds of a request: the only door to the engine. Knows no wire formats.

Every number is bounded here, before anything is allocated in proportion to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.core.errors import PromptTooLong, RequestError
from octavo.core.sampling import SamplingParams

MAX_N = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
MAX_STOP_IDS = 256
MAX_LOGPROBS = 20
MAX_TEMPERATURE = 2.0
MAX_CHARACTERS_PER_TOKEN = 512  # a prompt longer than that times the context cannot fit
PRIORITIES = range(-1000, 1001)
MAX_SALT_CHARACTERS = 512


def checked_params(params: SamplingParams, *, vocab_size: int) -> SamplingParams:
    """`params` with `stop` as a tuple and top_k -1 as 0. Raises RequestError naming the field."""
    check_choices(params)
    _real(params.temperature, "temperature", low=0, high=MAX_TEMPERATURE)
    _real(params.top_p, "top_p", low=0, high=1)
    _real(params.min_p, "min_p", low=0, high=1)
    if params.top_p == 0:
        raise RequestError("top_p must be above 0; 1 keeps every token", param="top_p")
    _whole(params.top_k, "top_k", low=-1, high=1 << 31)
    if params.max_tokens is not None:
        _whole(params.max_tokens, "max_tokens", low=1, high=1 << 31)
    if params.seed is not None:
        _whole(params.seed, "seed", low=-(1 << 63), high=(1 << 63) - 1)
    if params.logprobs is not None:
        _whole(params.logprobs, "logprobs", low=0, high=MAX_LOGPROBS)
    if not isinstance(params.ignore_eos, bool):
        raise RequestError("ignore_eos must be true or false", param="ignore_eos")
    return replace(
        params,
        top_k=max(0, params.top_k),
        stop=_checked_stops(params.stop),
        stop_token_ids=_checked_stop_ids(params.stop_token_ids, vocab_size),
    )


def check_choices(params: SamplingParams) -> int:
    """`params.n`, which is needed before the rest is looked at. Raises RequestError."""
    if not isinstance(params, SamplingParams):
        raise RequestError("params must be SamplingParams", param="params")
    _whole(params.n, "n", low=1, high=MAX_N)
    return params.n


def _checked_stops(stop: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    if not isinstance(stop, str | tuple | list):
        raise RequestError("stop must be a string or a list of strings", param="stop")
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop takes at most {MAX_STOPS} strings", param="stop")
    for each in stops:
        if not isinstance(each, str) or not 0 < len(each) <= MAX_STOP_CHARACTERS:
            raise RequestError(
                f"stop takes strings of 1 to {MAX_STOP_CHARACTERS} characters", param="stop"
            )
        _encodable(each, "stop")
    return stops


def _checked_stop_ids(ids: tuple[int, ...] | list[int], vocab_size: int) -> tuple[int, ...]:
    if not isinstance(ids, tuple | list):
        raise RequestError("stop_token_ids must be a list of token ids", param="stop_token_ids")
    if len(ids) > MAX_STOP_IDS:
        raise RequestError(f"stop_token_ids takes at most {MAX_STOP_IDS}", param="stop_token_ids")
    for each in ids:
        _whole(each, "stop_token_ids", low=0, high=vocab_size - 1)
    return tuple(ids)


def check_prompt_ids(ids: Sequence[int], *, vocab_size: int) -> None:
    """Raises RequestError unless every id is one of the vocabulary."""
    for position, each in enumerate(ids):
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < vocab_size:
            raise RequestError(
                f"prompt_token_ids[{position}] must be a token id from 0 to {vocab_size - 1}",
                param="prompt_token_ids",
            )


def check_prompt_text(text: str, *, max_model_len: int) -> None:
    """Refuses what cannot become tokens, or so many that tokenising would be for nothing."""
    if not isinstance(text, str):
        raise RequestError("prompt must be a string", param="prompt")
    _encodable(text, "prompt")
    if len(text) > max_model_len * MAX_CHARACTERS_PER_TOKEN:
        raise PromptTooLong(
            f"the prompt has {len(text)} characters, far more than the context of "
            f"{max_model_len} tokens holds",
            param="prompt",
        )


def check_length(n_prompt: int, *, max_model_len: int) -> None:
    """The prompt must be there and leave room for one token."""
    if n_prompt == 0:
        raise RequestError("the prompt is empty; give at least one token", code="empty_prompt",
                           param="prompt")  # fmt: skip
    if n_prompt >= max_model_len:
        raise PromptTooLong(
            f"the prompt has {n_prompt} tokens and the context is {max_model_len}: shorten it to "
            f"at most {max_model_len - 1}, so that one token can follow",
            param="prompt",
        )


def check_order(priority: int, salt: str) -> None:
    _whole(priority, "priority", low=PRIORITIES.start, high=PRIORITIES.stop - 1)
    if not isinstance(salt, str) or len(salt) > MAX_SALT_CHARACTERS:
        raise RequestError(
            f"cache_salt must be a string of at most {MAX_SALT_CHARACTERS} characters",
            param="cache_salt",
        )
    _encodable(salt, "cache_salt")


def _encodable(text: str, name: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(
            f"{name} contains a lone surrogate, which is not text; send valid Unicode",
            param=name,
            code="invalid_encoding",
        ) from None


def _whole(value: object, name: str, *, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{name} must be a whole number", param=name)
    if not low <= value <= high:  # the value is not shown: it may have any number of digits
        raise RequestError(f"{name} must be from {low} to {high}", param=name)


def _real(value: object, name: str, *, low: float, high: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RequestError(f"{name} must be a number", param=name)
    if not low <= value <= high:  # NaN too
        raise RequestError(f"{name} must be a number from {low} to {high}", param=name)
