"""From a wire model's first complaint to a RequestError with OpenAI's code and param.

Never quotes a value: only field names and bounds.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from octavo.core.errors import RequestError
from octavo.server.errors import quoted

MAX_PARAM_CHARS = 256  # it may be a name that the caller made up
TYPE_WORDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
BOUND_WORDS = {
    "greater_than_equal": ("ge", "at least", "below_min_value"),
    "greater_than": ("gt", "greater than", "below_min_value"),
    "less_than_equal": ("le", "at most", "above_max_value"),
    "less_than": ("lt", "less than", "above_max_value"),
}
LENGTH_CODES = {
    "string_too_short": "string_below_min_length",
    "string_too_long": "string_above_max_length",
    "too_short": "array_below_min_length",
    "too_long": "array_above_max_length",
}
OWN_CODES = frozenset(
    {
        "conflicting_parameters",
        "empty_prompt",
        "invalid_encoding",
        "invalid_type",
        "invalid_value",
        "missing_required_parameter",
        "unsupported_content",
        "unsupported_parameter",
    }
)


def request_error(error: ValidationError) -> RequestError:
    """The first complaint; one at a time is what a caller can act on."""
    details = error.errors(include_url=False, include_input=False)
    # An unknown name explains most other complaints (a misspelt required field), so it goes first.
    first = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    kind, context = first["type"], first.get("ctx", {})
    param = str(context.get("param") or path(first["loc"]))
    code, message = explain(kind, context, first, param)
    return RequestError(message, param=param[:MAX_PARAM_CHARS] or None, code=code)


def explain(
    kind: str, context: dict[str, Any], details: ErrorDetails, name: str
) -> tuple[str, str]:
    """(code, message) of one complaint about the field `name`."""
    shown = quoted(name) if name else "The body"
    if kind in OWN_CODES:
        return kind, details["msg"]
    if kind == "missing" or (kind == "string_too_short" and name == "model"):
        return "missing_required_parameter", f"{shown} is required."
    if kind == "extra_forbidden":
        return "unknown_parameter", f"Unknown parameter: {shown}."
    if kind in TYPE_WORDS:
        return "invalid_type", f"{shown} must be {TYPE_WORDS[kind]}."
    if kind in BOUND_WORDS:
        key, words, suffix = BOUND_WORDS[kind]
        bound = context[key]
        number = "integer" if isinstance(bound, int) else "decimal"
        return f"{number}_{suffix}", f"{shown} must be {words} {bound}."
    if kind in LENGTH_CODES:
        bound = context.get("min_length", context.get("max_length"))
        side = "at least" if "min_length" in context else "at most"
        return LENGTH_CODES[kind], f"{shown} must have a length of {side} {bound}."
    if kind == "string_unicode":
        return "invalid_encoding", f"{shown} has a lone surrogate; it cannot be encoded."
    if kind == "literal_error":
        return "invalid_value", f"{shown} must be one of {context.get('expected', '')}."
    if kind == "finite_number":
        return "invalid_value", f"{shown} must be a finite number."
    return "invalid_value", f"{shown} is not valid."


def path(location: tuple[int | str, ...]) -> str:
    """('messages', 0, 'content') as OpenAI writes it: messages.[0].content."""
    parts = [f"[{part}]" if isinstance(part, int) else part for part in location]
    return ".".join(part for part in parts if part != "[key]")
