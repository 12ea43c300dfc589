"""Field types of the wire models: known and not served, text, prompts, messages' content.

Each refusal carries its own error code. Knows no model and no engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypedDict

from octavo.engine.validate import (
    MAX_BAD_WORD_CHARACTERS,
    MAX_BAD_WORDS,
    MAX_BIASED_IDS,
    MAX_LOGIT_BIAS,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
)

INT32_MAX = 2**31 - 1
MEDIA_PARTS = frozenset({"image_url", "input_audio", "file", "video_url", "audio_url"})
MAX_MESSAGES = 4096
TOKEN_KEY = re.compile(r"[0-9]{1,10}")

Prompt: TypeAlias = str | list[int]


def same(value: object, allowed: object) -> bool:
    """Equal, but True is not 1."""
    return isinstance(value, bool) == isinstance(allowed, bool) and value == allowed


@dataclass(frozen=True, slots=True)
class Neutral:
    """A known parameter that is not served: only None and values that ask for nothing pass."""

    allowed: tuple[object, ...]
    advice: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del schema, handler
        return {"enum": [None, *self.allowed]}

    def _check(self, value: object, info: ValidationInfo) -> object:
        if value is None or any(same(value, one) for one in self.allowed):
            return value
        raise PydanticCustomError(
            "unsupported_parameter",
            "'{name}' is not supported{advice}.",
            {"name": info.field_name or "", "advice": self.advice and f"; {self.advice}"},
        )


def neutral(*allowed: object, advice: str = "") -> Neutral:
    """Beside None, the values of a parameter that ask for nothing; and what to do instead."""
    return Neutral(allowed, advice)


Absent = Annotated[Any, neutral()]
Off = Annotated[Any, neutral(False)]
EmptyList = Annotated[Any, neutral([])]


def encodable(text: str) -> str:
    """Text that can be UTF-8: a lone surrogate cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PydanticCustomError(
            "invalid_encoding",
            "The text has a lone surrogate at character {at}; it cannot be encoded.",
            {"at": error.start},
        ) from None
    return text


def prompts(value: object) -> list[Prompt]:
    """A prompt in any of its four forms as a list of texts or token lists; none is empty."""
    if isinstance(value, str) or is_token_list(value):
        return [one_prompt(value)]
    if not isinstance(value, list):
        raise PydanticCustomError(
            "invalid_type", "A prompt is a string, a list of strings, or (lists of) token ids.", {}
        )
    if not value:
        raise PydanticCustomError("empty_prompt", "The prompt is empty.", {})
    found = [one_prompt(item) for item in value]
    if len({isinstance(item, str) for item in found}) > 1:
        raise PydanticCustomError(
            "invalid_type", "A list of prompts is either all text or all token ids.", {}
        )
    return found


def is_token_list(value: object) -> bool:
    """Only the first item is looked at: what follows is checked where it is used."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def one_prompt(value: object) -> Prompt:
    """One text or one list of token ids (0 … 2³¹-1; the engine knows the vocabulary)."""
    if isinstance(value, str):
        if not value:
            raise PydanticCustomError("empty_prompt", "The prompt is empty.", {})
        return encodable(value)
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_type", "A prompt is a string or token ids.", {})
    if not value:
        raise PydanticCustomError("empty_prompt", "The prompt has no tokens.", {})
    if not all(type(token) is int and 0 <= token <= INT32_MAX for token in value):
        raise PydanticCustomError("invalid_value", "Token ids are integers from 0.", {})
    return value


def content(value: object) -> str | list[dict[str, str]]:
    """A message's content: text, or a non-empty list of text parts."""
    if isinstance(value, str):
        return encodable(value)
    if not isinstance(value, list) or not value:
        raise PydanticCustomError(
            "invalid_type", "Content is a string or a non-empty list of text parts.", {}
        )
    return [text_part(part) for part in value]


class TextPart(TypedDict):
    """A part as the API description shows it."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    type: Literal["text"]
    text: str


def text_part(part: object) -> dict[str, str]:
    """{"type": "text", "text": …} and nothing else."""
    if not isinstance(part, dict):
        raise PydanticCustomError("invalid_type", "A content part is an object.", {})
    kind = part.get("type")
    if isinstance(kind, str) and kind in MEDIA_PARTS:
        raise PydanticCustomError(
            "unsupported_content", "This model reads text only, not '{kind}' parts.", {"kind": kind}
        )
    if kind != "text" or not isinstance(part.get("text"), str):
        raise PydanticCustomError(
            "invalid_value", 'A content part is {"type": "text", "text": "…"}.', {}
        )
    if len(part) > 2:
        raise PydanticCustomError(
            "unsupported_parameter", "A text part has only 'type' and 'text'.", {}
        )
    return {"type": "text", "text": encodable(part["text"])}


def logit_bias(value: object) -> dict[int, float]:
    """Token id -> bias from an object whose keys, JSON allowing no others, are strings."""
    if not isinstance(value, dict):
        raise PydanticCustomError(
            "invalid_type", "'logit_bias' must be an object of token ids and numbers.", {}
        )
    if len(value) > MAX_BIASED_IDS:
        raise PydanticCustomError(
            "invalid_value",
            "'logit_bias' must have at most {most} token ids.",
            {"most": MAX_BIASED_IDS},
        )
    found: dict[int, float] = {}
    for key, bias in value.items():
        if not isinstance(key, str) or TOKEN_KEY.fullmatch(key) is None or int(key) > INT32_MAX:
            raise PydanticCustomError(
                "invalid_value", "Each key of 'logit_bias' must be a token id.", {}
            )
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise PydanticCustomError(
                "invalid_type", "Each value of 'logit_bias' must be a number.", {}
            )
        if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:  # NaN too
            raise PydanticCustomError(
                "invalid_value",
                "Each value of 'logit_bias' must be from -{most} to {most}.",
                {"most": int(MAX_LOGIT_BIAS)},
            )
        found[int(key)] = float(bias)
    return found


def as_list(value: object) -> object:
    """One stop string is a list of one."""
    return [value] if isinstance(value, str) else value


def shaped(check: Callable[[object], object], accepts: Any) -> PlainValidator:
    """Our own check of a value, with the shapes that it takes for the API schema."""
    return PlainValidator(check, json_schema_input_type=accepts)


# In every list of a body. One complaint is all that is told, and to collect one for each of
# millions of items took gigabytes and half a minute.
FIRST_ONLY: Any = Field(fail_fast=True)

Text = Annotated[str, AfterValidator(encodable)]
TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
PromptText = Annotated[str, Field(min_length=1)]
PromptTokens = Annotated[list[TokenId], Field(min_length=1)]
SeveralTexts = Annotated[list[PromptText], Field(min_length=1)]
SeveralTokens = Annotated[list[PromptTokens], Field(min_length=1)]
Prompts = Annotated[
    list[Prompt], shaped(prompts, PromptText | PromptTokens | SeveralTexts | SeveralTokens)
]
Parts = Annotated[list[TextPart], Field(min_length=1)]
Content = Annotated[str | list[dict[str, str]], shaped(content, str | Parts)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stops = Annotated[list[StopText], FIRST_ONLY, Field(max_length=MAX_STOPS), BeforeValidator(as_list)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD_CHARACTERS)]
BadWords = Annotated[list[BadWord], FIRST_ONLY, Field(max_length=MAX_BAD_WORDS)]
LogitBias = Annotated[dict[int, float], shaped(logit_bias, dict[str, float])]
