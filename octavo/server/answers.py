"""The shapes of answers, for the API description only: answers are written as plain objects.

A test checks what is sent against them, so they cannot fall behind. Fields not listed here may be
added; none of those listed is ever missing, unless it has a default.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

OPEN = ConfigDict(extra="allow", protected_namespaces=())
FinishReason = Literal["stop", "length", "tool_calls"]


class Answer(BaseModel):
    model_config = OPEN


class ErrorObject(Answer):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(Answer):
    """What every answer from 400 on holds."""

    error: ErrorObject


class Health(Answer):
    status: Literal["ok", "dead"]


class Ready(Answer):
    status: Literal["ready", "not ready"]


class ModelCard(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class Models(Answer):
    object: Literal["list"]
    data: list[ModelCard]


class PromptTokensDetails(Answer):
    """Prompt tokens taken from the cache, and computed and kept there."""

    cached_tokens: int
    cache_write_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None


class ChatLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int]


class ChatPosition(ChatLogprob):
    top_logprobs: list[ChatLogprob]


class ChatLogprobs(Answer):
    content: list[ChatPosition]
    refusal: None


class ReplyFunction(Answer):
    """`arguments` are the JSON text of an object."""

    name: str
    arguments: str


class ReplyCall(Answer):
    id: str
    type: Literal["function"]
    function: ReplyFunction


class ChatReply(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: list[ReplyCall] | None = None


class Choice(Answer):
    """What the choices of all answers share. `stop_reason`: the caller's stop that ended it."""

    index: int
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    cumulative_logprob: float | None = None


class ChatChoice(Choice):
    message: ChatReply
    logprobs: ChatLogprobs | None


class Head(Answer):
    id: str
    created: int
    model: str
    system_fingerprint: str


class ChatCompletion(Head):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class ReplyCallDelta(ReplyCall):
    index: int


class ChatDelta(Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[ReplyCallDelta] | None = None


class ChatEventChoice(Choice):
    delta: ChatDelta
    logprobs: ChatLogprobs | None


class ChatEvent(Head):
    """One event; the last one is `[DONE]`, or an error object if it failed on the way."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatEventChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None


class TextLogprobs(Answer):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(Choice):
    text: str
    logprobs: TextLogprobs | None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class TextCompletion(Head):
    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage


class TextEvent(Head):
    """One event; the last one is `[DONE]`, or an error object if it failed on the way."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage | None = None


class Tokenized(Answer):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Answer):
    prompt: str


class Version(Answer):
    version: str


class ServerLoad(Answer):
    server_load: int


class CacheReset(Answer):
    """`held_blocks` are in use: they stay until they are let go, and nobody finds them any more."""

    freed_blocks: int
    held_blocks: int


class UsageGroup(Answer):
    """Sums of one day, key or model, which is a field of that name too."""

    requests: int
    prompt_tokens: int
    read_tokens: int
    written_5m_tokens: int
    written_1h_tokens: int
    written_implicit_tokens: int
    unkept_tokens: int
    output_tokens: int
    duration_seconds: float
    block_seconds: float
    mean_first_token_seconds: float | None
    cost_dollars: float | None
    unpriced_requests: int


class UsageSums(Answer):
    object: Literal["usage"]
    by: Literal["day", "key", "model"]
    since: str
    until: str
    data: list[UsageGroup]
    has_more: bool
