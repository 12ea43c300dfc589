"""What a model may call and what it calls: two values and their bounds.

Owns which names, schemas and arguments are taken. Knows no prompts (`tool_prompt` writes them), no
answers (`tool_parser` reads them) and no wire format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from octavo.core.errors import RequestError

MAX_TOOLS = 128
MAX_TOOLS_BYTES = 1 << 19
MAX_NAME_CHARS = 128
MAX_JSON_DEPTH = 32
MAX_JSON_NODES = 50_000
MAX_CALL_CHARS = 1 << 18
TOOL_CHOICES = ("auto", "none")
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters`: the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def signature(self) -> dict[str, Any]:
        """The tool as a JSON object; a description that is empty is left out."""
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments`: JSON text of an object, as the model wrote it."""

    name: str
    arguments: str


def check_tools(tools: Sequence[Tool]) -> None:
    """Raises RequestError naming the tool's field that is wrong."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Tool) for tool in tools):
        raise RequestError("tools must be a list of Tool", param="tools")
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools takes at most {MAX_TOOLS}, not {len(tools)}", param="tools")
    for place, tool in enumerate(tools):
        where = f"tools.[{place}]"
        check_name(tool.name, f"{where}.name")
        if not isinstance(tool.description, str):
            raise RequestError(
                f"{where}.description must be a string", param=f"{where}.description"
            )
        check_schema(tool.parameters, f"{where}.parameters")
    if len({tool.name for tool in tools}) < len(tools):
        raise RequestError("two tools have the same name; give each its own", param="tools")
    n_bytes = sum(len(json.dumps(tool.signature())) for tool in tools)
    if n_bytes > MAX_TOOLS_BYTES:
        raise RequestError(
            f"the tools are {n_bytes} bytes of JSON; the limit is {MAX_TOOLS_BYTES}", param="tools"
        )


def check_name(name: object, where: str) -> str:
    """A function's name. Raises RequestError."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise RequestError(
            f"{where} must be 1 to {MAX_NAME_CHARS} letters, digits, underscores or hyphens",
            param=where,
        )
    return name


def check_schema(schema: object, where: str) -> None:
    """The JSON schema of a function's arguments, which are an object. Raises RequestError."""
    if not isinstance(schema, Mapping):
        raise RequestError(f"{where} must be a JSON schema object", param=where)
    if schema.get("type", "object") != "object":
        raise RequestError(
            f'{where} must describe an object: its type must be "object"', param=where
        )
    _check_json(schema, where)


def arguments_object(text: object, where: str) -> dict[str, Any]:
    """The arguments of a call from their JSON text. Raises RequestError naming `where`."""
    if not isinstance(text, str) or len(text) > MAX_CALL_CHARS:
        raise RequestError(
            f"{where} must be JSON text of at most {MAX_CALL_CHARS} characters", param=where
        )
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be the JSON text of an object", param=where)
    _check_json(value, where)
    return value


def refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{name} is not JSON")


def _check_json(value: object, where: str) -> None:
    """Raises RequestError unless `value` is JSON of bounded depth and size, with real numbers."""
    stack, n_nodes = [(value, 1)], 0
    while stack:
        item, depth = stack.pop()
        n_nodes += 1
        if depth > MAX_JSON_DEPTH:
            raise RequestError(f"{where} nests deeper than {MAX_JSON_DEPTH} levels", param=where)
        if n_nodes + len(stack) > MAX_JSON_NODES:
            raise RequestError(f"{where} holds more than {MAX_JSON_NODES} values", param=where)
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                raise RequestError(f"{where} has a key that is not a string", param=where)
            stack.extend((each, depth + 1) for each in item.values())
        elif isinstance(item, list | tuple):
            stack.extend((each, depth + 1) for each in item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise RequestError(f"{where} has a number out of range", param=where)
        elif item is not None and not isinstance(item, str | int):
            raise RequestError(f"{where} holds something that is not JSON", param=where)
