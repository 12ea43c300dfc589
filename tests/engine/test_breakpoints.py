"""Where the places to keep fall among the tokens of a rendered conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.errors import RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.breakpoints import MAX_BREAKPOINTS, Breakpoint, Keep
from octavo.engine.chat import ChatFormat
from octavo.engine.hf_tokenizer import from_folder
from octavo.engine.prepare import Preparer
from octavo.engine.tokenizer import LibraryTokenizer
from octavo.engine.tools import Tool
from octavo.engine.types import GenerateRequest
from tests.engine.test_chat import TEMPLATES
from tests.engine.test_tool_prompt import HISTORY, TAGS, WEATHER

PARTS: list[dict[str, Any]] = [
    {"role": "system", "content": [{"type": "text", "text": t} for t in ("Be brief. ", "Always.")]},
    {"role": "user", "content": "hello world"},
    {"role": "assistant", "content": "the quick brown fox"},
    {"role": "user", "content": [{"type": "text", "text": "jumps <|im_end|>\n\n"}]},
]


@pytest.fixture(scope="module")
def tokenizer(folders: dict[str, Path]) -> LibraryTokenizer:
    return from_folder(folders["byte_level"])


def located(
    chat: ChatFormat,
    messages: list[dict[str, Any]],
    *places: tuple[int | None, int],
    tools: tuple[Tool, ...] = (),
) -> tuple[list[int], tuple[Keep, ...]]:
    breakpoints = [Breakpoint(message, part, 300) for message, part in places]
    tokens = chat.encode(messages, tools=tools)
    return tokens, chat.locate(messages, breakpoints, tools=tools, tokens=tokens)


def spelled(tokenizer: LibraryTokenizer, tokens: list[int], keep: Keep) -> str:
    return tokenizer.decode(tokens[: keep.end], skip_special=False)


def test_a_place_is_the_end_of_its_part(tokenizer: LibraryTokenizer) -> None:
    tokens, keeps = located(ChatFormat(tokenizer), PARTS, (0, 0), (0, 1), (2, 0), (3, 0))
    texts = [spelled(tokenizer, tokens, keep) for keep in keeps]
    assert texts[0].startswith("<|im_start|>system\nBe brief.")
    assert "Always" not in texts[0]
    assert texts[1].endswith("Always.")
    assert texts[2].endswith("<|im_start|>assistant\nthe quick brown fox")
    assert texts[3].endswith("<|im_start|>user\njumps <|im_end|>\n\n")
    assert [keep.end for keep in keeps] == sorted(keep.end for keep in keeps)


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"macro"}))  # it turns the order round
def test_what_is_kept_is_what_a_longer_prompt_shares(
    tokenizer: LibraryTokenizer, name: str
) -> None:
    """Changing all that follows a place leaves the tokens before it."""
    chat = ChatFormat(tokenizer, template=TEMPLATES[name])
    tokens, keeps = located(chat, PARTS, (1, 0))
    other = [*PARTS[:2], {"role": "assistant", "content": "?"}, {"role": "user", "content": "!"}]
    (keep,) = keeps
    assert "hello world" in spelled(tokenizer, tokens, keep)
    assert chat.encode(other)[: keep.end] == tokens[: keep.end]


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece", "metaspace"])
def test_any_tokenizer(folders: dict[str, Path], kind: str) -> None:
    """One that puts a space in front spells more than the text: its beginnings are encoded."""
    tokenizer = from_folder(folders[kind])
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    chat = ChatFormat(tokenizer, template=template)
    messages = [{"role": "user", "content": text} for text in ("hello", "the quick </s> fox", "a")]
    tokens, keeps = located(chat, messages, (0, 0), (1, 0))
    texts = [tokenizer.decode(tokens[: keep.end], skip_special=False) for keep in keeps]
    assert [text.strip() for text in texts] == ["hello", "hello\nthe quick </s> fox"]


def test_trimmed_and_unshown_text(tokenizer: LibraryTokenizer) -> None:
    chat = ChatFormat(tokenizer, template=TEMPLATES["trimmed"])
    messages = [{"role": "user", "content": "hello world  \n"}]
    tokens, (keep,) = located(chat, messages, (0, 0))
    assert spelled(tokenizer, tokens, keep).endswith("hello world")
    hides = ChatFormat(tokenizer, template="{{ messages[-1].content }}")
    assert located(hides, PARTS, (1, 0))[1] == ()


@pytest.mark.parametrize("template", [TAGS, None])
def test_tools_calls_and_results(tokenizer: LibraryTokenizer, template: str | None) -> None:
    chat = ChatFormat(tokenizer, template=template)
    tools = (WEATHER, Tool("clock", "tells the time", {}))
    tokens, keeps = located(chat, HISTORY, (None, 0), (2, 1), (2, 2), (4, 0), tools=tools)
    texts = [spelled(tokenizer, tokens, keep) for keep in keeps]
    assert len(texts) == 4
    assert "city" in texts[0]
    assert "clock" not in texts[0]
    assert "Köln" in texts[1]
    assert texts[1].count("<tool_call>") == texts[2].count("<tool_call>") - 1
    assert texts[3].endswith("rain")


def test_a_mark_changes_no_token_and_private_characters_are_no_mark(
    tokenizer: LibraryTokenizer,
) -> None:
    messages = [{"role": "user", "content": "a\U0010fffdb \U0010fffc"}]
    chat = ChatFormat(tokenizer)
    tokens, (keep,) = located(chat, messages, (0, 0))
    assert spelled(tokenizer, tokens, keep).endswith("a\U0010fffdb \U0010fffc")


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=12), min_size=1, max_size=6), data=st.data())
def test_any_text_keeps_its_order(
    tokenizer: LibraryTokenizer, texts: list[str], data: st.DataObject
) -> None:
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": text}
        for i, text in enumerate(texts)
    ]
    spots = st.integers(0, len(texts) - 1)
    places = [(spot, 0) for spot in sorted(data.draw(st.lists(spots, max_size=4)))]
    try:
        tokens, keeps = located(ChatFormat(tokenizer), messages, *places)
    except RequestError:  # half of a surrogate pair
        return
    assert len(keeps) == len(places)
    ends = [keep.end for keep in keeps]
    assert ends == sorted(ends)
    assert min(ends, default=1) > 0
    assert max(ends, default=0) < len(tokens)


@pytest.mark.parametrize(
    "breakpoints",
    [
        [Breakpoint(4, 0, 300)],
        [Breakpoint(-1, 0, 300)],
        [Breakpoint(0, 2, 300)],
        [Breakpoint(0, -1, 300)],
        [Breakpoint(None, 0, 300)],
        [Breakpoint(0, 0, 0)],
        [Breakpoint(0, 0, 10**9)],
        [Breakpoint(0, 0, 300)] * (MAX_BREAKPOINTS + 1),
    ],
)
def test_a_place_that_is_not_there_is_refused(
    tokenizer: LibraryTokenizer, breakpoints: list[Breakpoint]
) -> None:
    preparer = Preparer(
        tokenizer,
        vocab_size=430,
        max_model_len=1000,
        eos_token_ids=(),
        defaults=SamplingParams(),
    )
    good = GenerateRequest(messages=PARTS, breakpoints=[Breakpoint(3, 0, 300)])
    assert len(preparer.prepare(good).keeps) == 1
    with pytest.raises(RequestError) as caught:
        preparer.prepare(GenerateRequest(messages=PARTS, breakpoints=breakpoints))
    assert caught.value.param == "breakpoints"
    with pytest.raises(RequestError, match="need messages"):
        preparer.prepare(GenerateRequest(prompt="a", breakpoints=breakpoints))
