"""The bounds of a request: the only door to the engine. Knows no wire formats.

Every number is bounded here, before anything is allocated in proportion to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from octavo.core.errors import PromptTooLong, RequestError
from octavo.core.sampling import SamplingParams

MAX_N = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024
MAX_STOP_IDS = 256
MAX_LOGPROBS = 20
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
REPETITION_PENALTIES = (0.01, 100.0)  # beyond these a logit may no longer be a finite float32
MAX_LOGIT_BIAS = 100.0
MAX_BIASED_IDS = 300
MAX_BAD_WORDS = 256
MAX_BAD_WORD_CHARACTERS = 256
MAX_CHARACTERS_PER_TOKEN = 256  # a prompt longer than that times the context cannot fit
PRIORITIES = range(-1000, 1001)
MAX_SALT_CHARACTERS = 512


def checked_params(params: SamplingParams, *, vocab_size: int) -> SamplingParams:
    """`params` with `stop` as a tuple and top_k -1 as 0. Raises RequestError naming the field."""
    check_choices(params)
    _check_filters(params)
    _check_penalties(params)
    _check_ends(params)
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(params, name) is not None:
            _whole(getattr(params, name), name, low=0, high=MAX_LOGPROBS)
    if params.seed is not None:
        _whole(params.seed, "seed", low=-(1 << 63), high=(1 << 63) - 1)
    return replace(
        params,
        top_k=max(0, params.top_k),
        logit_bias=_checked_bias(params.logit_bias, vocab_size),
        allowed_token_ids=_checked_allowed(params.allowed_token_ids, vocab_size),
        bad_words=_checked_bad_words(params.bad_words, vocab_size),
        stop=_checked_stops(params.stop),
        stop_token_ids=_checked_stop_ids(params.stop_token_ids, vocab_size),
    )


def _check_filters(params: SamplingParams) -> None:
    _real(params.temperature, "temperature", low=0, high=MAX_TEMPERATURE)
    _real(params.top_p, "top_p", low=0, high=1)
    _real(params.min_p, "min_p", low=0, high=1)
    if params.top_p == 0:
        raise RequestError("top_p must be above 0; 1 keeps every token", param="top_p")
    _whole(params.top_k, "top_k", low=-1, high=1 << 31)


def _check_penalties(params: SamplingParams) -> None:
    for name in ("presence_penalty", "frequency_penalty"):
        _real(getattr(params, name), name, low=-MAX_PENALTY, high=MAX_PENALTY)
    low, high = REPETITION_PENALTIES
    _real(params.repetition_penalty, "repetition_penalty", low=low, high=high)


def _check_ends(params: SamplingParams) -> None:
    _whole(params.min_tokens, "min_tokens", low=0, high=1 << 31)
    if params.max_tokens is not None:
        _whole(params.max_tokens, "max_tokens", low=1, high=1 << 31)
        if params.min_tokens > params.max_tokens:
            raise RequestError(
                f"min_tokens {params.min_tokens} is more than max_tokens {params.max_tokens}; "
                "lower the one or raise the other",
                param="min_tokens",
            )
    for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
        if not isinstance(getattr(params, name), bool):
            raise RequestError(f"{name} must be true or false", param=name)


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
    return _token_ids(ids, "stop_token_ids", most=MAX_STOP_IDS, vocab_size=vocab_size)


def _checked_bias(bias: Mapping[int, float] | None, vocab_size: int) -> Mapping[int, float] | None:
    if bias is None:
        return None
    if not isinstance(bias, Mapping):
        raise RequestError("logit_bias must map token ids to numbers", param="logit_bias")
    if len(bias) > MAX_BIASED_IDS:
        raise RequestError(f"logit_bias takes at most {MAX_BIASED_IDS} ids", param="logit_bias")
    for token, value in bias.items():
        _whole(token, "each id of logit_bias", low=0, high=vocab_size - 1, param="logit_bias")
        _real(value, "each value of logit_bias", low=-MAX_LOGIT_BIAS, high=MAX_LOGIT_BIAS,
              param="logit_bias")  # fmt: skip
    return dict(bias)


def _checked_allowed(
    ids: tuple[int, ...] | list[int] | None, vocab_size: int
) -> tuple[int, ...] | None:
    if ids is None:
        return None
    found = _token_ids(ids, "allowed_token_ids", most=vocab_size, vocab_size=vocab_size)
    if not found:
        raise RequestError(
            "allowed_token_ids is empty, so no token could be taken; leave it out to allow all",
            param="allowed_token_ids",
        )
    return found


def _checked_bad_words(words: Any, vocab_size: int) -> tuple[str | tuple[int, ...], ...]:
    if not isinstance(words, tuple | list):
        raise RequestError("bad_words must be a list of strings", param="bad_words")
    if len(words) > MAX_BAD_WORDS:
        raise RequestError(f"bad_words takes at most {MAX_BAD_WORDS}", param="bad_words")
    return tuple(_checked_bad_word(word, vocab_size) for word in words)


def _checked_bad_word(word: Any, vocab_size: int) -> str | tuple[int, ...]:
    if isinstance(word, tuple | list) and word:
        return _token_ids(word, "bad_words", most=MAX_BAD_WORD_CHARACTERS, vocab_size=vocab_size)
    if not isinstance(word, str) or not 0 < len(word) <= MAX_BAD_WORD_CHARACTERS:
        raise RequestError(
            f"bad_words takes strings of 1 to {MAX_BAD_WORD_CHARACTERS} characters, or lists of "
            "token ids",
            param="bad_words",
        )
    _encodable(word, "bad_words")
    if not word.strip():
        raise RequestError("bad_words takes words, not white space alone", param="bad_words")
    return word


def _token_ids(ids: Any, name: str, *, most: int, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(ids, tuple | list):
        raise RequestError(f"{name} must be a list of token ids", param=name)
    if len(ids) > most:
        raise RequestError(f"{name} takes at most {most}", param=name)
    for each in ids:
        _whole(each, name, low=0, high=vocab_size - 1)
    return tuple(ids)


def check_prompt_ids(
    ids: Sequence[int], *, vocab_size: int, name: str = "prompt_token_ids"
) -> None:
    """Raises RequestError unless every id is one of the vocabulary."""
    for position, each in enumerate(ids):
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < vocab_size:
            raise RequestError(
                f"{name}[{position}] must be a token id from 0 to {vocab_size - 1}", param=name
            )


def check_prompt_text(text: str, *, max_model_len: int) -> None:
    """Refuses what cannot become tokens, or so many that tokenising would be for nothing."""
    if not isinstance(text, str):
        raise RequestError("prompt must be a string", param="prompt")
    _encodable(text, "prompt")
    _check_size(len(text), max_model_len=max_model_len, param="prompt")


def check_messages_size(messages: object, *, max_model_len: int) -> None:
    """The same for the texts of messages. What is no text is others' to refuse."""
    n_characters = 0
    for message in messages if isinstance(messages, list | tuple) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = content if isinstance(content, list | tuple) else [{"text": content}]
        texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
        n_characters += sum(len(text) for text in texts if isinstance(text, str))
    _check_size(n_characters, max_model_len=max_model_len, param="messages")


def _check_size(n_characters: int, *, max_model_len: int, param: str) -> None:
    if n_characters > max_model_len * MAX_CHARACTERS_PER_TOKEN:
        raise PromptTooLong(
            f"the prompt has {n_characters} characters, far more than the context of "
            f"{max_model_len} tokens holds",
            param=param,
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


def check_truncation(limit: int | None, *, max_model_len: int) -> None:
    """-1, or a number of tokens that leaves room for one more."""
    if limit == -1 and not isinstance(limit, bool):
        return
    if limit is not None:
        _whole(limit, "truncate_prompt_tokens", low=1, high=max_model_len - 1)


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


def _whole(value: object, name: str, *, low: int, high: int, param: str | None = None) -> None:
    param = param or name
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{name} must be a whole number", param=param)
    if not low <= value <= high:  # the value is not shown: it may have any number of digits
        raise RequestError(f"{name} must be from {low} to {high}", param=param)


def _real(value: object, name: str, *, low: float, high: float, param: str | None = None) -> None:
    param = param or name
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RequestError(f"{name} must be a number", param=param)
    if not low <= value <= high:  # NaN too
        raise RequestError(f"{name} must be a number from {low} to {high}", param=param)
