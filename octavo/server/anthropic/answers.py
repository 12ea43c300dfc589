"""The shapes of the Anthropic API's answers, for the API description only."""

from __future__ import annotations

from typing import Any, Literal

from octavo.server.answers import Answer


class AnthropicErrorObject(Answer):
    type: str
    message: str


class AnthropicError(Answer):
    """What every answer from 400 on holds."""

    type: Literal["error"]
    error: AnthropicErrorObject
    request_id: str


class CacheCreation(Answer):
    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class MessageUsage(Answer):
    """`input_tokens`: neither read from the cache nor written up to a breakpoint."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    cache_creation: CacheCreation
    output_tokens: int


class AnthropicText(Answer):
    type: Literal["text"]
    text: str


class AnthropicToolUse(Answer):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class AnthropicMessage(Answer):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnthropicText | AnthropicToolUse]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class AnthropicEvent(Answer):
    """One event; its name is its `type`."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]


class CountedTokens(Answer):
    input_tokens: int
