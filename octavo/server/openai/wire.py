"""The OpenAI request bodies as strict models: every known field by name, everything else refused.

A field is served, a no-op by its own definition, or known and refused unless it asks for nothing.
Bounds are the engine's own; here they get the codes that OpenAI's clients know.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from octavo.core.beams import MAX_WIDTH
from octavo.engine.beam_bounds import MAX_LENGTH_PENALTY
from octavo.engine.validate import (
    MAX_LOGPROBS,
    MAX_N,
    MAX_PENALTY,
    MAX_SALT_CHARACTERS,
    MAX_STOP_IDS,
    MAX_TEMPERATURE,
    PRIORITIES,
    REPETITION_PENALTIES,
)
from octavo.server.openai.tools import STRICT, CallId, MadeCalls, ToolChoice, Tools
from octavo.server.wire_fields import (
    FIRST_ONLY,
    INT32_MAX,
    MAX_MESSAGES,
    Absent,
    BadWords,
    Content,
    EmptyList,
    LogitBias,
    Off,
    Prompts,
    Stops,
    TokenId,
    neutral,
)

MAX_TEXT = 512
COMPLETION_TOKENS = 16  # OpenAI's default for the older of the two APIs

Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Repetition = Annotated[float, Field(ge=REPETITION_PENALTIES[0], le=REPETITION_PENALTIES[1])]
PositiveInt = Annotated[int, Field(ge=1, le=INT32_MAX)]


def conflict(message: str, param: str) -> NoReturn:
    """Raise for fields that do not go together; `param` is the one to change."""
    # The message is ours and has no placeholders; `param` rides along for the error object.
    raise PydanticCustomError("conflicting_parameters", message, {"param": param})


class StreamOptions(BaseModel):
    model_config = STRICT

    include_usage: bool = False
    include_obfuscation: Annotated[Any, neutral(False, True)] = None
    continuous_usage_stats: bool = False  # vLLM's: every event tells the tokens so far

    @model_validator(mode="after")
    def check_usage(self) -> Self:
        if self.continuous_usage_stats and not self.include_usage:
            conflict(
                "'continuous_usage_stats' needs 'include_usage': true.",
                "stream_options.continuous_usage_stats",
            )
        return self


class Generation(BaseModel):
    """What both APIs share."""

    model_config = STRICT

    model: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_N)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stops | None = None
    max_tokens: PositiveInt | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    # Fields that vLLM's users send in the body beside OpenAI's.
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    stop_token_ids: Annotated[list[TokenId], FIRST_ONLY, Field(max_length=MAX_STOP_IDS)] | None = (
        None
    )
    ignore_eos: bool | None = None
    repetition_penalty: Repetition | None = None
    allowed_token_ids: Annotated[list[TokenId], FIRST_ONLY, Field(min_length=1)] | None = None
    bad_words: BadWords | None = None
    min_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    priority: Annotated[int, Field(ge=PRIORITIES[0], le=PRIORITIES[-1])] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    return_token_ids: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT_CHARACTERS)] | None = None
    use_beam_search: bool | None = None
    beam_width: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    length_penalty: (
        Annotated[float, Field(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)] | None
    ) = None
    early_stopping: bool | Literal["never"] | None = None
    # No-ops here by their own definition: labels, and routing among machines we do not have.
    user: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Off = None
    # Known and not served.
    spaces_between_special_tokens: Annotated[Any, neutral(True)] = None
    structured_outputs: Absent = None
    guided_json: Absent = None
    guided_regex: Absent = None
    guided_choice: Absent = None
    guided_grammar: Absent = None
    response_format: Annotated[Any, neutral({"type": "text"})] = None
    kv_transfer_params: Absent = None
    prompt_cache_retention: Absent = None
    prompt_cache_options: Absent = None
    echo: Off = None

    @model_validator(mode="after")
    def check_streaming(self) -> Self:
        if self.stream_options is not None and not self.stream:
            conflict("'stream_options' needs 'stream': true.", "stream_options")
        if self.prompt_logprobs is not None and self.stream:
            conflict("'prompt_logprobs' are told in whole answers only.", "prompt_logprobs")
        return self

    @model_validator(mode="after")
    def check_beams(self) -> Self:
        if self.beam_width is not None and self.use_beam_search is False:
            conflict("'beam_width' needs 'use_beam_search': true.", "beam_width")
        return self

    @property
    def beams(self) -> int | None:
        """Width of the search that is asked for; without one of its own as wide as its answers."""
        return (self.n or 1) if self.use_beam_search and not self.beam_width else self.beam_width


class ChatMessage(BaseModel):
    """One turn of text. A reply of ours may be sent back as it is: empty fields are accepted."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    tool_calls: MadeCalls | None = None
    tool_call_id: Annotated[CallId | None, Field(validate_default=True)] = None
    content: Annotated[Content | None, Field(validate_default=True)] = None
    name: Absent = None
    refusal: Absent = None
    annotations: EmptyList = None
    audio: Absent = None
    function_call: Absent = None
    reasoning_content: Absent = None

    @field_validator("tool_calls")
    @classmethod
    def check_calls(cls, calls: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        if calls and info.data.get("role") != "assistant":
            raise PydanticCustomError("invalid_value", "Only an assistant has 'tool_calls'.", {})
        return calls

    @field_validator("tool_call_id")
    @classmethod
    def check_call_id(cls, call_id: str | None, info: ValidationInfo) -> str | None:
        if (call_id is not None) != (info.data.get("role") == "tool") and "role" in info.data:
            raise PydanticCustomError(
                "invalid_value", "A message of role tool has a 'tool_call_id', and no other.", {}
            )
        return call_id

    @field_validator("content")
    @classmethod
    def check_content(cls, content: Any, info: ValidationInfo) -> Any:
        """Calls may stand without words."""
        if content is None and not info.data.get("tool_calls"):
            raise PydanticCustomError("missing_required_parameter", "A message has 'content'.", {})
        return content


class ChatRequest(Generation):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], FIRST_ONLY, Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None  # says nothing without tools
    functions: Annotated[Any, neutral([], advice="use 'tools'")] = None
    function_call: Annotated[Any, neutral("none", advice="use 'tools' and 'tool_choice'")] = None
    modalities: Annotated[Any, neutral(["text"])] = None
    audio: Absent = None
    prediction: Absent = None
    reasoning_effort: Absent = None
    verbosity: Absent = None
    web_search_options: Absent = None
    moderation: Absent = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: Absent = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: Off = None

    @model_validator(mode="after")
    def check_tools(self) -> Self:
        if self.tool_choice == "auto" and not self.tools:
            conflict("'tool_choice' needs 'tools'.", "tool_choice")
        if self.tools and self.parallel_tool_calls is False:
            raise PydanticCustomError(
                "unsupported_parameter",
                "'parallel_tool_calls': false is not supported; leave it out.",
                {"param": "parallel_tool_calls"},
            )
        return self

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            conflict("'top_logprobs' needs 'logprobs': true.", "top_logprobs")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            conflict("Give 'max_completion_tokens' or 'max_tokens', not both.", "max_tokens")
        return self


class CompletionRequest(Generation):
    """Body of /v1/completions."""

    prompt: Prompts
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None
    suffix: Annotated[Any, neutral("")] = None
    best_of: Annotated[int, Field(ge=1, le=MAX_N)] | None = None

    @model_validator(mode="after")
    def check_best_of(self) -> Self:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise PydanticCustomError(
                "unsupported_parameter",
                "'best_of' other than 'n' is not supported; for the best of several answers "
                "use 'beam_width'.",
                {"param": "best_of"},
            )
        return self
