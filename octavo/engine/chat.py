"""Chat messages and tools to token ids, through the model's own chat template.

Owns what a message may be, and the rule that its text stays text: a special token spelled in a
message or a tool is replaced by a stand-in character before the template sees it, so only the
template's own spellings become special tokens. Knows no HTTP and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from octavo.core.errors import RequestError, Unsupported
from octavo.engine.breakpoints import Breakpoint, Keep, marked, n_tokens_before, places
from octavo.engine.chat_options import ChatOptions
from octavo.engine.open_ending import check_ending, up_to_mark, with_mark
from octavo.engine.template_sandbox import ChatTemplate
from octavo.engine.tokenizer import Tokenizer
from octavo.engine.tool_prompt import (
    as_text,
    for_template,
    has_tools,
    speaks_tools,
    tools_for_template,
)
from octavo.engine.tool_turns import check_results, checked_calls
from octavo.engine.tools import Tool

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
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Tool] = (),
        options: ChatOptions | None = None,
    ) -> list[int]:
        """Token ids of the rendered conversation. `tools` have been checked.

        Raises RequestError naming the message or option that is wrong, or with the code
        `template_error`.
        """
        text, literal = self._render(messages, tools, options or ChatOptions())
        return self._tokenizer.encode_rendered(text, literal=literal)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Tool] = (),
        options: ChatOptions | None = None,
    ) -> str:
        """The rendered text as a person reads it; special tokens in it cannot be told from text."""
        text, literal = self._render(messages, tools, options or ChatOptions())
        return text.translate({ord(mark): spelling for mark, spelling in literal.items()})

    @cached_property
    def speaks_tools(self) -> bool:
        """Whether the template writes tools, calls and results itself; else they become text."""
        return speaks_tools(lambda messages, tools: self._fill(messages, tools, ChatOptions()))

    def locate(
        self,
        messages: Sequence[Mapping[str, Any]],
        breakpoints: Sequence[Breakpoint],
        *,
        tools: Sequence[Tool] = (),
        options: ChatOptions | None = None,
        tokens: Sequence[int],
    ) -> tuple[Keep, ...]:
        """Where `breakpoints` fall in `tokens`, which `encode` made of all the others."""
        options = options or ChatOptions()
        text, literal = self._render(messages, tools, options)
        assert self._template is not None
        used = {*text, *literal, *self._template.source}
        free = (chr(point) for point in reversed(_STAND_INS) if chr(point) not in used)
        marks = [next(free) for _ in breakpoints]
        shown, _ = self._render(*marked(messages, tools, breakpoints, marks), options)
        found = places(breakpoints, marks, text=text, marked_text=shown)
        spelled = str.maketrans(literal)
        ends = n_tokens_before(
            [text[:n_chars] for n_chars, _ in found],
            text,
            tokens,
            n_bytes=lambda part: len(part.translate(spelled).encode()),
            token_bytes=self._tokenizer.token_bytes,
            encode=lambda part: self._tokenizer.encode_rendered(part, literal=literal),
        )
        kept = (Keep(end, each.ttl_seconds) for end, (_, each) in zip(ends, found, strict=True))
        return tuple(sorted(kept, key=lambda keep: (keep.end, keep.ttl_seconds)))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool],
        options: ChatOptions,
    ) -> tuple[str, dict[str, str]]:
        if self._template is None:
            raise RequestError(
                "this model has no chat template; use the completions endpoint with a plain "
                "prompt, or start the engine with a template",
                param="messages",
                code="no_chat_template",
            )
        options.check()
        plain, shown = check_messages(messages), None
        if options.continue_final_message:
            check_ending(plain[-1])
        if tools or has_tools(plain):
            if self.speaks_tools:
                plain, shown = for_template(plain), tools_for_template(tools)
            else:
                plain = as_text(plain, tools)
        guarded, literal = self._guard({"messages": plain, "tools": shown})
        if not options.continue_final_message:
            return self._fill(guarded["messages"], guarded["tools"], options), literal
        mark = self._free_mark(guarded, taken=literal)
        *before, final = guarded["messages"]
        text = self._fill([*before, with_mark(final, mark)], guarded["tools"], options)
        return up_to_mark(text, mark), literal

    def _fill(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: ChatOptions,
    ) -> str:
        assert self._template is not None
        variables: dict[str, Any] = dict(self._tokenizer.named_specials)
        variables.update(self._told(options))
        variables.update(
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=options.opens_answer,
        )
        return self._template.render(variables)

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

    def _free_mark(self, values: dict[str, Any], *, taken: Collection[str]) -> str:
        """A stand-in character that neither the values nor the template have."""
        assert self._template is not None
        used = set(self._template.source).union(taken, *_texts(values))
        for point in reversed(_STAND_INS):
            if chr(point) not in used:
                return chr(point)
        raise RequestError(NO_STAND_IN, param="messages")

    def _guard(self, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """`values` with a stand-in for every special token they spell; stand-in → spelling."""
        pattern = self._tokenizer.special_pattern
        if pattern is None:
            return values, {}
        spelled = sorted({match[0] for text in _texts(values) for match in pattern.finditer(text)})
        if not spelled:
            return values, {}
        assert self._template is not None
        used = set(self._template.source).union(*_texts(values))
        free = (chr(point) for point in _STAND_INS if chr(point) not in used)
        marks = dict(zip(spelled, free, strict=False))
        if len(marks) < len(spelled):
            raise RequestError(NO_STAND_IN, param="messages")
        guarded = _mapped(values, lambda text: pattern.sub(lambda found: marks[found[0]], text))
        return guarded, {mark: spelling for spelling, mark in marks.items()}


def _texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value of bounded depth, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, change) for each in value]
    return value


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with all text as plain strings. Raises RequestError naming what is wrong.

    A list of text parts becomes one string, a line break between parts. Fields that are null count
    as absent: clients send back what they were sent. `tool_calls` are in the form that
    `checked_calls` returns; the content beside them may be absent.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestError(
            f"there are {len(messages)} messages; the limit is {MAX_MESSAGES}", param="messages"
        )
    plain = [_check_message(message, f"messages.[{i}]") for i, message in enumerate(messages)]
    n_chars = sum(map(len, _texts(plain)))
    if n_chars > MAX_CHARS:
        raise RequestError(
            f"the messages hold {n_chars} characters; the limit is {MAX_CHARS}", param="messages"
        )
    check_results(plain)
    return plain


def _check_message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        content = ""
    plain: dict[str, Any] = {"role": role, "content": _content_text(content, f"{where}.content")}
    for key, value in message.items():
        if key in plain or value is None:
            continue
        if key == "tool_calls" and role == "assistant":
            if calls := checked_calls(value, f"{where}.{key}"):
                plain[key] = calls
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
