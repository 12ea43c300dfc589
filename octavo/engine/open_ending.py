"""A conversation whose final message is to be continued: the rendered text ends within it.

The message carries a mark through the template, and the text is cut there. Knows no templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.core.errors import RequestError


def check_ending(message: Mapping[str, Any]) -> None:
    """Raises RequestError unless the message has some text and nothing that would follow it."""
    if message["role"] == "tool" or message.get("tool_calls") or not message["content"]:
        raise RequestError(
            "continue_final_message needs a final message of text alone, and some of it",
            param="messages",
        )


def with_mark(message: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The message with `mark` where its text ends."""
    return {**message, "content": message["content"] + mark}


def up_to_mark(rendered: str, mark: str) -> str:
    """What the template wrote before `mark`. Raises RequestError `template_error` without one."""
    before, found, after = rendered.partition(mark)
    if not found or mark in after:
        raise RequestError(
            "this model's chat template does not write the final message exactly once, so it "
            "cannot be continued",
            param="continue_final_message",
            code="template_error",
        )
    return before
