"""Tools on OpenAI's wire: the fields of requests as strict models, and the calls of an answer.

The bounds are the engine's. Knows no HTTP and no prompt.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from octavo.core.errors import RequestError
from octavo.engine.tool_turns import MAX_CALL_ID_CHARS
from octavo.engine.tools import (
    MAX_TOOLS,
    TOOL_CHOICES,
    Tool,
    ToolCall,
    arguments_object,
    check_name,
    check_schema,
)
from octavo.server.wire_fields import FIRST_ONLY, Off, Text, encodable

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
NO_ARGUMENTS = {"type": "object", "properties": {}}


def by_engine(check: Callable[[Any, str], object]) -> AfterValidator:
    """One of the engine's own checks of a value; `check` also takes what to call the field."""

    def run(value: Any, info: ValidationInfo) -> Any:
        try:
            check(value, f"'{info.field_name}'")
        except RequestError as error:
            raise PydanticCustomError(error.code, error.message) from None
        return value

    return AfterValidator(run)


def served_choice(value: object) -> object:
    """`tool_choice`: None, "auto" or "none"; to force a call is not served."""
    if value is None or value in TOOL_CHOICES:
        return value
    raise PydanticCustomError(
        "unsupported_parameter",
        "A forced 'tool_choice' is not supported; use 'auto' or 'none'.",
        {},
    )


Name = Annotated[str, by_engine(check_name)]
CallId = Annotated[
    str, Field(min_length=1, max_length=MAX_CALL_ID_CHARS), AfterValidator(encodable)
]


class Function(BaseModel):
    model_config = STRICT

    name: Name
    description: Text | None = None
    parameters: Annotated[dict[str, Any], by_engine(check_schema)] | None = None
    strict: Off = None


class FunctionTool(BaseModel):
    model_config = STRICT

    type: Literal["function"]
    function: Function

    def neutral(self) -> Tool:
        wire = self.function
        schema = NO_ARGUMENTS if wire.parameters is None else wire.parameters
        return Tool(wire.name, wire.description or "", schema)


class CalledFunction(BaseModel):
    model_config = STRICT

    name: Name
    arguments: Annotated[str, by_engine(arguments_object), AfterValidator(encodable)]


class MadeCall(BaseModel):
    """A call in an assistant's earlier message."""

    model_config = STRICT

    id: CallId
    type: Literal["function"]
    function: CalledFunction


Tools = Annotated[list[FunctionTool], FIRST_ONLY, Field(max_length=MAX_TOOLS)]
MadeCalls = Annotated[list[MadeCall], FIRST_ONLY, Field(max_length=MAX_TOOLS)]
ToolChoice = Annotated[Any, AfterValidator(served_choice)]


def call_object(call: ToolCall) -> dict[str, Any]:
    """A call in an answer, with an id of its own."""
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
