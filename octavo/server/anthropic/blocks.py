"""Content blocks of Anthropic's messages, and where `cache_control` may stand.

Kinds that this server does not read are refused by name. Knows no engine and no HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from octavo.engine.tool_turns import MAX_CALL_ID_CHARS
from octavo.server.wire_fields import FIRST_ONLY, EmptyList, Off, Text, neutral

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
MAX_BLOCKS = 10_000
MEDIA = frozenset({"image", "document", "search_result", "container_upload"})
TTL_SECONDS = {"5m": 300, "1h": 3600}


class CacheControl(BaseModel):
    """Keep the prompt up to here, for five minutes unless it says an hour."""

    model_config = STRICT

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None

    @property
    def ttl_seconds(self) -> int:
        return TTL_SECONDS[self.ttl or "5m"]


class TextBlock(BaseModel):
    model_config = STRICT

    type: Literal["text"]
    text: Text
    cache_control: CacheControl | None = None
    citations: EmptyList = None


def known_kind(*kinds: str) -> BeforeValidator:
    """A block of one of `kinds`; another kind is refused by its name."""

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            raise PydanticCustomError(
                "invalid_type", "A content block is an object with a 'type'.", {}
            )
        if kind in kinds:
            return value
        reason = "this model reads text only" if kind in MEDIA else f"only {', '.join(kinds)}"
        raise PydanticCustomError(
            "unsupported_content",
            "Content blocks of type '{kind}' are not supported here: {reason}.",
            {"kind": "".join(c if c.isprintable() else "?" for c in kind[:40]), "reason": reason},
        )

    return BeforeValidator(check)


def as_blocks(value: object) -> object:
    """A string stands for one block of text."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list):
        return value
    raise PydanticCustomError("invalid_type", "Content is a string or a list of blocks.", {})


StringOrBlocks: Any = BeforeValidator(as_blocks, json_schema_input_type=str | list[dict[str, Any]])
Length: Any = Field(max_length=MAX_BLOCKS)
Texts = Annotated[
    list[Annotated[TextBlock, known_kind("text")]], FIRST_ONLY, Length, StringOrBlocks
]


class ToolUseBlock(BaseModel):
    """A call of the assistant's, sent back."""

    model_config = STRICT

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_CHARS)]
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Annotated[Any, neutral({"type": "direct"})] = None


class ToolResultBlock(BaseModel):
    """What a call came to."""

    model_config = STRICT

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_CHARS)]
    content: Texts = []
    is_error: bool | None = None
    cache_control: CacheControl | None = None


Block: TypeAlias = Annotated[
    Annotated[TextBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")],
    known_kind("text", "tool_use", "tool_result"),
]
Blocks = Annotated[
    list[Block], FIRST_ONLY, Field(min_length=1, max_length=MAX_BLOCKS), StringOrBlocks
]


class ToolShape(BaseModel):
    """A function that the model may call. Tools that the API's maker runs are refused by type."""

    model_config = STRICT

    type: Annotated[Any, neutral("custom")] = None
    name: str
    description: Text | None = None
    input_schema: dict[str, Any]
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None  # how soon input is told: here always when whole
    strict: Off = None
    defer_loading: Off = None
    input_examples: EmptyList = None
    allowed_callers: Annotated[Any, neutral(["direct"])] = None


class ToolChoice(BaseModel):
    """Whether the model may call; being made to is not served."""

    model_config = STRICT

    type: Literal["auto", "none"]
    disable_parallel_tool_use: Off = None


def known_choice(value: object) -> object:
    """A choice that forces a call is refused by its name."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in ("any", "tool"):
        raise PydanticCustomError(
            "unsupported_parameter",
            "a 'tool_choice' of type '{kind}' is not supported; 'auto' and 'none' are.",
            {"kind": kind},
        )
    return value


Choice = Annotated[ToolChoice, BeforeValidator(known_choice)]
