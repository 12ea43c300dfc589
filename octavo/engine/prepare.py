"""From a neutral request to token ids and bounded parameters. Thread-safe: runs off the event loop.

Owns validation, templates and tokenising in their order; knows no queues and no blocks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.core.beams import BeamRules
from octavo.core.errors import RequestError, Unsupported
from octavo.core.request import Limits
from octavo.core.sampling import SamplingParams
from octavo.engine.beam_bounds import beam_rules, check_beams
from octavo.engine.breakpoints import Keep, check_breakpoints
from octavo.engine.chat import ChatFormat
from octavo.engine.chat_options import ChatOptions
from octavo.engine.tokenizer import Tokenizer
from octavo.engine.tools import TOOL_CHOICES, Tool, check_tools
from octavo.engine.types import GenerateRequest
from octavo.engine.validate import (
    check_length,
    check_messages_size,
    check_order,
    check_prompt_ids,
    check_prompt_text,
    check_truncation,
    checked_params,
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that may enter the engine. `stops` are strings to cut at.

    `params` has a seed, and its `bad_words` are token sequences. `keeps` are the breakpoints.
    """

    id: str
    prompt: str | None
    tokens: list[int]
    params: SamplingParams
    stops: tuple[str, ...]
    limits: Limits
    priority: int
    salt: str
    keeps: tuple[Keep, ...] = ()
    beams: BeamRules | None = None  # the rules of a beam search, if the choices are its answers


class Preparer:
    def __init__(
        self,
        tokenizer: Tokenizer | None,
        *,
        vocab_size: int,
        max_model_len: int,
        eos_token_ids: Sequence[int],
        defaults: SamplingParams,
    ) -> None:
        self._tokenizer = tokenizer
        self._chat = None if tokenizer is None else ChatFormat(tokenizer)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._eos = frozenset(eos_token_ids)
        self._defaults = defaults

    def prepare(self, request: GenerateRequest) -> Prepared:
        """Raises RequestError naming the field that is wrong."""
        params = self._defaults if request.params is None else request.params
        params = checked_params(params, vocab_size=self._vocab_size)
        check_beams(params, vocab_size=self._vocab_size)
        check_order(request.priority, request.salt)
        check_truncation(request.truncate_prompt_tokens, max_model_len=self._max_model_len)
        tokens = self.tokens(request, keep=self._kept(request, params))
        check_length(len(tokens), max_model_len=self._max_model_len)
        stops = tuple(params.stop)
        if stops and self._tokenizer is None:
            raise Unsupported("stop strings need a tokenizer; use stop_token_ids", param="stop")
        room = self._max_model_len - len(tokens)
        stop_ids = frozenset(params.stop_token_ids)
        limits = Limits(
            max_tokens=min(room, params.max_tokens or room),
            stop_ids=stop_ids if params.ignore_eos else stop_ids | self._eos,
        )
        beams = beam_rules(params)
        params = replace(
            params,
            temperature=params.temperature if beams is None else 0.0,  # beams draw nothing
            seed=secrets.randbits(63) if params.seed is None else params.seed,
            bad_words=self._bad_sequences(params.bad_words),
        )
        return Prepared(
            id=request.id,
            prompt=request.prompt,
            tokens=tokens,
            params=params,
            stops=stops,
            limits=limits,
            priority=request.priority,
            salt=request.salt,
            keeps=self._keeps(request, tokens),
            beams=beams,
        )

    def _bad_sequences(self, words: Sequence[str | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Token sequences that spell `words`, at the start of a text and after a space."""
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            if not isinstance(word, str):
                found[tuple(word)] = None
                continue
            if self._tokenizer is None:
                raise Unsupported(
                    "bad_words as strings need a tokenizer; give lists of token ids",
                    param="bad_words",
                )
            for spelling in (word, f" {word.lstrip()}"):
                found[tuple(self._tokenizer.encode_rendered(spelling))] = None
        found.pop((), None)  # a tokenizer may normalise a word away: it cannot be generated either
        return tuple(found)

    def _keeps(self, request: GenerateRequest, tokens: list[int]) -> tuple[Keep, ...]:
        if not request.breakpoints:
            return ()
        if request.truncate_prompt_tokens is not None:
            raise RequestError(
                "breakpoints are places of a whole prompt; leave out truncate_prompt_tokens",
                param="truncate_prompt_tokens",
            )
        check_breakpoints(request.breakpoints, request.messages, request.tools)
        assert request.messages is not None
        assert self._chat is not None
        return self._chat.locate(
            request.messages,
            request.breakpoints,
            tools=_shown_tools(request),
            options=request.chat,
            tokens=tokens,
        )

    def _kept(self, request: GenerateRequest, params: SamplingParams) -> int | None:
        """How many of the prompt's last tokens to keep; None: all of them."""
        if request.truncate_prompt_tokens != -1:
            return request.truncate_prompt_tokens
        room = self._max_model_len - (params.max_tokens or 1)
        if room < 1:
            raise RequestError(
                f"truncate_prompt_tokens -1 leaves room for max_tokens, and {params.max_tokens} "
                f"leave none for a prompt in a context of {self._max_model_len}; ask for fewer",
                param="max_tokens",
            )
        return room

    def tokens(self, request: GenerateRequest, *, keep: int | None = None) -> list[int]:
        """The prompt's token ids, `keep` of the last ones. Raises RequestError naming the field."""
        _check_chat_fields(request)
        given = (request.prompt, request.prompt_token_ids, request.messages)
        if sum(each is not None for each in given) != 1:
            raise RequestError(
                "give exactly one of prompt, prompt_token_ids and messages", param="prompt"
            )
        if request.prompt_token_ids is not None:
            return self._checked_ids(request.prompt_token_ids, keep)
        if self._tokenizer is None:
            raise Unsupported(
                "this engine runs without a tokenizer (skip_tokenizer_init): give prompt_token_ids",
                param="prompt",
            )
        if request.prompt is not None:
            check_prompt_text(request.prompt, max_model_len=self._max_model_len)
            ids = self._tokenizer.encode(request.prompt, add_special=request.add_special_tokens)
        else:
            assert request.messages is not None
            assert self._chat is not None
            check_messages_size(request.messages, max_model_len=self._max_model_len)
            ids = self._chat.encode(
                request.messages, tools=_shown_tools(request), options=request.chat
            )
        return ids if keep is None else ids[-keep:]

    def _checked_ids(self, given: Sequence[int], keep: int | None) -> list[int]:
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise RequestError(
                "prompt_token_ids must be a list of token ids", param="prompt_token_ids"
            )
        ids = list(given if keep is None else given[-keep:])
        if len(ids) < self._max_model_len:  # a longer one is refused for its length
            check_prompt_ids(ids, vocab_size=self._vocab_size)
        return ids


def _shown_tools(request: GenerateRequest) -> Sequence[Tool]:
    """What the model is told of."""
    return () if request.tool_choice == "none" else request.tools


def _check_chat_fields(request: GenerateRequest) -> None:
    if not isinstance(request.chat, ChatOptions):
        raise RequestError("chat must be ChatOptions", param="chat")
    check_tools(request.tools)
    if request.tool_choice not in TOOL_CHOICES:
        raise Unsupported(
            f"tool_choice must be one of {', '.join(TOOL_CHOICES)}", param="tool_choice"
        )
    if request.tools and request.messages is None:
        raise RequestError("tools need messages; a plain prompt has none", param="tools")
