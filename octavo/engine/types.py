"""The neutral request and its answers: the only types that front ends and the engine exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.core.receipt import Receipt
from octavo.core.sampling import SamplingParams
from octavo.engine.breakpoints import Breakpoint
from octavo.engine.chat_options import ChatOptions
from octavo.engine.tools import Tool, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Text or tokens in, with what to do. Exactly one of prompt, prompt_token_ids, messages is set.

    `messages` are chat messages as dicts with role and content, rendered by the model's template as
    `chat` says.
    `tools` go with messages: what the model may call. With `tool_choice` "none" it is not told of
    them; calls and results among the messages are rendered either way.
    `params` are taken as they are; None means what the model's files recommend.
    `breakpoints`: places of messages or tools up to which the caller wants the prompt kept.
    `priority`: lower runs first. `salt` separates cache namespaces. `id` is the caller's own label.
    `add_special_tokens`: put around `prompt` what the tokenizer puts by itself, such as a BOS.
    `truncate_prompt_tokens`: keep this many of the prompt's last tokens; -1 leaves room for
    params.max_tokens. `clamp_max_tokens`: False refuses a max_tokens beyond what fits.
    """

    prompt: str | None = None
    prompt_token_ids: Sequence[int] | None = None
    messages: Sequence[dict[str, Any]] | None = None
    tools: Sequence[Tool] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    breakpoints: Sequence[Breakpoint] = ()
    params: SamplingParams | None = None
    priority: int = 0
    salt: str = ""
    id: str = ""
    chat: ChatOptions = field(default_factory=ChatOptions)
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    clamp_max_tokens: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One candidate at one position. `rank` 1 is the likeliest."""

    logprob: float
    rank: int


PromptLogprobs = tuple[dict[int, TokenLogprob] | None, ...]
"""One entry per prompt token: None for the first one, which nothing precedes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, all choices together.

    From the receipt: `cached_tokens` of the prompt were read from the cache, `cache_write_tokens`
    computed and kept there; the rest of the prompt was computed and not kept.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step added to one choice. `text` is whole characters, never part of a stop string.

    `cumulative_logprob`: of all tokens of a beam search's answer, its stop token included; None for
    what was sampled.

    The last chunk of a choice has `finish_reason`; the last chunk of the request also has `usage`.
    `stop_reason` is the caller's stop string or stop token id that ended it; None for any other
    end. `error` is set when finish_reason is "error". `logprobs`: per token of this chunk, id to
    TokenLogprob, the chosen token first. `prompt_logprobs`: the same of the whole prompt, with the
    first chunk of choice 0 that has a token. `tool_calls`: made out of the text by `ToolChunks`,
    which ends a choice that called something with the finish_reason "tool_calls".
    """

    choice: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[int, TokenLogprob], ...] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    cumulative_logprob: float | None = None
    usage: Usage | None = None
    receipt: Receipt | None = None
    error: str | None = None
    prompt_logprobs: PromptLogprobs | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class Completion:
    """One choice, whole. `error` is set when finish_reason is "error".

    `tool_calls` are those of the answer, and `text` is the rest of it.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: str | int | None = None
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, TokenLogprob]] | None = None
    receipt: Receipt | None = None
    error: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)


@dataclass(slots=True)
class Output:
    """One request, whole. `receipt` is the leading choice's, which prefilled the prompt.

    A beam search's choices are its answers, best first; they share one receipt.
    """

    id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[Completion]
    num_cached_tokens: int
    receipt: Receipt | None
    prompt_logprobs: PromptLogprobs | None = None
