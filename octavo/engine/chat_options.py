"""How a conversation is rendered, beside its messages: how it ends, and what the template is told.

Owns the list of template variables that a request may set. Knows no templates and no messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.core.errors import RequestError, Unsupported

EFFORTS = ("none", "minimal", "low", "medium", "high")
# Nothing that could spell a special token: a template writes it into its own text.
DATE = re.compile(r"[0-9A-Za-z ,.:/+-]{1,64}")
TEMPLATE_VARIABLES = {
    "enable_thinking": "true or false",
    "thinking": "true or false",
    "reasoning_effort": "one of " + ", ".join(EFFORTS),
    "date_string": "a date of at most 64 letters, digits, spaces and ,.:/+-",
}
"""What `chat_template_kwargs` may hold, with what each must be. All else is the server's to say."""
OWN_FIELDS = ("add_generation_prompt", "continue_final_message")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Rendering of one conversation.

    add_generation_prompt   end with the opening of an answer; None: unless the final message is
                            to be continued.
    continue_final_message  leave the final message open, so that the answer goes on with it.
    template_kwargs         variables for the template, of those in TEMPLATE_VARIABLES.
    """

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def opens_answer(self) -> bool:
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    def check(self) -> None:
        """Raises RequestError naming the field that is wrong."""
        for name in OWN_FIELDS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise RequestError(f"{name} must be true or false", param=name)
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "continue_final_message leaves the final message open and add_generation_prompt "
                "begins a new one; ask for one of them",
                param="continue_final_message",
                code="conflicting_parameters",
            )
        if not isinstance(self.template_kwargs, Mapping):
            raise _wrong("must be an object")
        for key, value in self.template_kwargs.items():
            check_variable(key, value)


def check_variable(name: object, value: object) -> None:
    """Raises RequestError unless a request may tell the template this."""
    if name in OWN_FIELDS:
        raise _wrong(f"does not take {name}: it is a field of its own, beside the messages")
    if name not in TEMPLATE_VARIABLES:
        raise Unsupported(
            f"chat_template_kwargs may have {', '.join(TEMPLATE_VARIABLES)}, and nothing else",
            param="chat_template_kwargs",
        )
    if not _fits(name, value):
        raise _wrong(f"has a wrong {name}: it must be {TEMPLATE_VARIABLES[name]}")


def _fits(name: str, value: object) -> bool:
    if name == "reasoning_effort":
        return value in EFFORTS
    if name == "date_string":
        return isinstance(value, str) and DATE.fullmatch(value) is not None
    return isinstance(value, bool)


def _wrong(what: str) -> RequestError:
    return RequestError(f"chat_template_kwargs {what}", param="chat_template_kwargs")
