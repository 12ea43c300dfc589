"""The bodies of /v1/messages and /v1/messages/count_tokens as strict models.

A field is served, a no-op by its own definition, or known and refused unless it asks for nothing.
Knows no engine and no HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.engine.tools import MAX_TOOLS
from octavo.engine.validate import MAX_STOPS
from octavo.server.anthropic.blocks import Blocks, CacheControl, Choice, Texts, ToolShape
from octavo.server.wire_fields import (
    FIRST_ONLY,
    INT32_MAX,
    MAX_MESSAGES,
    Absent,
    StopText,
    neutral,
)

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
MAX_TEXT = 512
MAX_TEMPERATURE = 1.0  # Anthropic's own bound, half of the engine's


class Metadata(BaseModel):
    """A label of the caller's; nothing is done with it."""

    model_config = STRICT

    user_id: Annotated[str, Field(max_length=MAX_TEXT)] | None = None


class Message(BaseModel):
    """One turn. `system` within the conversation is passed on as it is."""

    model_config = STRICT

    role: Literal["user", "assistant", "system"]
    content: Blocks


class CountRequest(BaseModel):
    """Body of /v1/messages/count_tokens: what shapes the prompt."""

    model_config = STRICT

    model: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    messages: Annotated[list[Message], FIRST_ONLY, Field(min_length=1, max_length=MAX_MESSAGES)]
    system: Texts | None = None
    tools: Annotated[list[ToolShape], FIRST_ONLY, Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    cache_control: CacheControl | None = None
    # No thinking is made here, so a model that may decide for itself decides against it.
    thinking: Annotated[Any, neutral({"type": "disabled"}, {"type": "adaptive"})] = None
    output_config: Annotated[Any, neutral({}, {"effort": "high"})] = None
    context_management: Annotated[Any, neutral({}, {"edits": []})] = None
    mcp_servers: Annotated[Any, neutral([])] = None
    speed: Annotated[Any, neutral("standard")] = None
    user_profile_id: Absent = None
    workspace_id: Absent = None


class MessagesRequest(CountRequest):
    """Body of /v1/messages."""

    max_tokens: Annotated[int, Field(ge=1, le=INT32_MAX)]
    stream: bool | None = None
    stop_sequences: Annotated[list[StopText], FIRST_ONLY, Field(max_length=MAX_STOPS)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    # No-ops here by their own definition: a label, and routing among machines we do not have.
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    # Known and not served.
    container: Absent = None
    diagnostics: Absent = None
    inference_geo: Absent = None
