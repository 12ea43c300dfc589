"""Chat messages to token ids, through the model's own chat template.

Owns what a message may be, and the rule that its text stays text: a special token spelled in a
message is replaced by a stand-in character before the template sees it, so only the template's own
spellings become special tokens. Knows no HTTP and no model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from octavo.core.errors import RequestError, Unsupported
from octavo.engine.chat_options import ChatOptions
from octavo.engine.template_sandbox import ChatTemplate
from octavo.engine.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 10_000
MAX_CHARS = 1 << 23
MAX_PARTS = 10_000
_TEXT_FIELDS = ("name", "reasoning_content", "tool_call_id")
# The last plane of private-use characters: no text needs it, and no normaliser changes it.
_STAND_INS = range(0x100000, 0x10FFFE)
NO_STAND_IN = "the messages use every private-use character there is; remove some"


class ChatFormat:
    """Turns messages into the prompt that this model was trained on."""

    def __init__(self, tokenizer: Tokenizer, *, template: str | None = None) -> None:
        """`template` replaces the tokenizer's own; only the operator may choose it."""
        source = template if template is not None else tokenizer.chat_template
        self._tokenizer = tokenizer
        self._template = ChatTemplate(source) if source is not None else None

    def encode(
        self, messages: Sequence[Mapping[str, Any]], *, options: ChatOptions | None = None
    ) -> list[int]:
        """Token ids of the rendered conversation.

        Raises RequestError naming the message or option that is wrong, or with the code
        `template_error`.
        """
        text, literal = self._render(messages, options or ChatOptions())
        return self._tokenizer.encode_rendered(text, literal=literal)

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, options: ChatOptions | None = None
    ) -> str:
        """The rendered text as a person reads it; special tokens in it cannot be told from text."""
        text, literal = self._render(messages, options or ChatOptions())
        return text.translate({ord(mark): spelling for mark, spelling in literal.items()})

    def _render(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions
    ) -> tuple[str, dict[str, str]]:
        if self._template is None:
            raise RequestError(
                "this model has no chat template; use the completions endpoint with a plain "
                "prompt, or start the engine with a template",
                param="messages",
                code="no_chat_template",
            )
        options.check()
        plain = check_messages(messages)
        guarded, literal = self._guard(plain)
        variables: dict[str, Any] = dict(self._tokenizer.named_specials)
        variables.update(self._told(options))
        variables.update(
            messages=guarded,
            tools=None,
            documents=None,
            add_generation_prompt=options.opens_answer,
        )
        if not options.continue_final_message:
            return self._template.render(variables), literal
        mark = self._free_mark(guarded, taken=literal)
        variables["messages"] = [*guarded[:-1], with_mark(guarded[-1], mark)]
        return up_to_mark(self._template.render(variables), mark), literal

    def _told(self, options: ChatOptions) -> Mapping[str, Any]:
        """The caller's variables. One that the template does not read may only switch it off."""
        assert self._template is not None
        for name, value in options.template_kwargs.items():
            read = re.search(rf"\b{name}\b", self._template.source) is not None
            if not read and value is not False:
                raise Unsupported(
                    f"this model's chat template does not read {name}; leave it out of "
                    "chat_template_kwargs",
                    param="chat_template_kwargs",
                )
        return options.template_kwargs

    def _free_mark(self, messages: Sequence[Mapping[str, str]], *, taken: Collection[str]) -> str:
        """A stand-in character that neither the messages nor the template have."""
        assert self._template is not None
        used = set(self._template.source).union(taken, *(t for m in messages for t in m.values()))
        for point in reversed(_STAND_INS):
            if chr(point) not in used:
                return chr(point)
        raise RequestError(NO_STAND_IN, param="messages")

    def _guard(self, messages: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, str]]:
        """Messages with a stand-in for every special token they spell; stand-in → spelling."""
        pattern = self._tokenizer.special_pattern
        if pattern is None:
            return messages, {}
        spelled = sorted(
            {
                match[0]
                for message in messages
                for text in message.values()
                for match in pattern.finditer(text)
            }
        )
        if not spelled:
            return messages, {}
        assert self._template is not None
        used = set(self._template.source).union(*(t for m in messages for t in m.values()))
        free = (chr(point) for point in _STAND_INS if chr(point) not in used)
        marks = dict(zip(spelled, free, strict=False))
        if len(marks) < len(spelled):
            raise RequestError(NO_STAND_IN, param="messages")
        guarded = [
            {key: pattern.sub(lambda found: marks[found[0]], text) for key, text in message.items()}
            for message in messages
        ]
        return guarded, {mark: spelling for spelling, mark in marks.items()}


def with_mark(message: Mapping[str, str], mark: str) -> dict[str, str]:
    """The message with `mark` where its text ends. Raises RequestError if it has more than text."""
    beside = set(message) - {"role", "content", *_TEXT_FIELDS}
    if beside or not message["content"]:
        raise RequestError(
            "continue_final_message needs a final message of text alone, and some of it",
            param="messages",
        )
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


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The messages with all text as plain strings. Raises RequestError naming what is wrong.

    A list of text parts becomes one string, a line break between parts. Fields that are null count
    as absent: clients send back what they were sent.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestError(
            f"there are {len(messages)} messages; the limit is {MAX_MESSAGES}", param="messages"
        )
    plain = [_check_message(message, f"messages.[{i}]") for i, message in enumerate(messages)]
    n_chars = sum(len(text) for message in plain for text in message.values())
    if n_chars > MAX_CHARS:
        raise RequestError(
            f"the messages hold {n_chars} characters; the limit is {MAX_CHARS}", param="messages"
        )
    return plain


def _check_message(message: object, where: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
    plain = {"role": role, "content": _content_text(message.get("content"), f"{where}.content")}
    for key, value in message.items():
        if key in plain or value is None:
            continue
        if key not in _TEXT_FIELDS:
            shown = str(key)[:64]
            raise Unsupported(
                f"{where}.{shown} is not supported; leave it out", param=f"{where}.{shown}"
            )
        if not isinstance(value, str):
            raise RequestError(f"{where}.{key} must be a string", param=f"{where}.{key}")
        plain[key] = value
    return plain


def _content_text(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where} must be a string or a list of text parts", param=where)
    if len(content) > MAX_PARTS:
        raise RequestError(
            f"{where} has {len(content)} parts; the limit is {MAX_PARTS}", param=where
        )
    texts: list[str] = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind != "text":
            raise Unsupported(
                f"{where}: part {place} is of type {kind[:40]!r}; this model reads text parts only",
                param=where,
            )
        text = part.get("text") if isinstance(part, Mapping) and kind == "text" else None
        if not isinstance(text, str):
            raise RequestError(
                f'{where}: part {place} must be {{"type": "text", "text": "…"}}', param=where
            )
        texts.append(text)
    return "\n".join(texts)
