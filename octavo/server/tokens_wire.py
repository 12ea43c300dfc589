"""Bodies of /tokenize and /detokenize as strict models, as vLLM's clients send them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from octavo.server.openai.tools import STRICT, Tools
from octavo.server.openai.wire import MAX_TEXT, ChatMessage
from octavo.server.wire_fields import FIRST_ONLY, MAX_MESSAGES, Absent, Off, Text, TokenId

MAX_TOKENS = 1 << 20  # of one text; the body's size bounds the other way

ModelName = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class TokenizeText(BaseModel):
    """Body of /tokenize for a plain prompt."""

    model_config = STRICT

    model: ModelName | None = None
    prompt: Text
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(BaseModel):
    """Body of /tokenize for a conversation."""

    model_config = STRICT

    model: ModelName | None = None
    messages: Annotated[list[ChatMessage], FIRST_ONLY, Field(min_length=1, max_length=MAX_MESSAGES)]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None
    return_token_strs: bool | None = None
    # Known and not served.
    add_special_tokens: Off = None
    chat_template: Absent = None


class Detokenize(BaseModel):
    """Body of /detokenize."""

    model_config = STRICT

    model: ModelName | None = None
    tokens: Annotated[list[TokenId], FIRST_ONLY, Field(max_length=MAX_TOKENS)]
