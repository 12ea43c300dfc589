"""Calls and results among chat messages: their form, and that each result has its call.

Knows neither how they are rendered nor any wire format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.core.errors import RequestError, Unsupported
from octavo.engine.tools import MAX_TOOLS, arguments_object, check_name

MAX_CALL_ID_CHARS = 128


def checked_calls(calls: object, where: str) -> list[dict[str, Any]]:
    """`tool_calls` of one message in their one form. Raises RequestError naming what is wrong.

    [{"id": …, "type": "function", "function": {"name": …, "arguments": JSON text}}, …]
    """
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{where} must be a list of calls", param=where)
    if len(calls) > MAX_TOOLS:
        raise RequestError(f"{where} takes at most {MAX_TOOLS} calls", param=where)
    plain = [_checked_call(call, f"{where}.[{i}]") for i, call in enumerate(calls)]
    if len({call["id"] for call in plain}) < len(plain):
        raise RequestError(f"{where}: two calls have the same id", param=where)
    return plain


def _checked_call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise RequestError(f"{where} must be an object with id and function", param=where)
    if call.get("type", "function") != "function":
        raise Unsupported(f'{where}.type must be "function"', param=f"{where}.type")
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(
            f"{where}.function must be an object with name and arguments", param=f"{where}.function"
        )
    name = check_name(function.get("name"), f"{where}.function.name")
    arguments = function.get("arguments")
    arguments_object(arguments, f"{where}.function.arguments")
    call_id = _checked_id(call.get("id"), f"{where}.id")
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _checked_id(call_id: object, where: str) -> str:
    if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_CALL_ID_CHARS:
        raise RequestError(
            f"{where} must be a string of 1 to {MAX_CALL_ID_CHARS} characters", param=where
        )
    return call_id


def check_results(messages: Sequence[Mapping[str, Any]]) -> None:
    """Every call is answered by one `tool` message right after it, and every answer has its call.

    Raises RequestError naming the message that is wrong.
    """
    asked, open_ids = 0, set[str]()
    for place, message in enumerate(messages):
        if message["role"] != "tool":
            _check_answered(asked, open_ids)
            asked, open_ids = place, {call["id"] for call in message.get("tool_calls", ())}
            continue
        where = f"messages.[{place}].tool_call_id"
        if message.get("tool_call_id") not in open_ids:
            raise RequestError(
                f"{where} must be the id of a call that the assistant's message before it made and "
                "that has no result yet",
                param=where,
            )
        open_ids.remove(message["tool_call_id"])
    _check_answered(asked, open_ids)


def _check_answered(asked: int, open_ids: set[str]) -> None:
    if open_ids:
        where = f"messages.[{asked}].tool_calls"
        raise RequestError(
            f"{where}: {len(open_ids)} of its calls have no result; a message of role tool with "
            "the tool_call_id of each must follow",
            param=where,
        )
