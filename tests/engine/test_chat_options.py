"""How a conversation ends, and what a request may tell the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.core.errors import RequestError, Unsupported
from octavo.engine.chat import ChatFormat
from octavo.engine.chat_options import TEMPLATE_VARIABLES, ChatOptions
from octavo.engine.hf_tokenizer import from_folder
from octavo.engine.tokenizer import LibraryTokenizer

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKS = (
    "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}"
    "{% if enable_thinking is defined and enable_thinking is false %}[no thoughts]{% endif %}"
    "{{ date_string }}"
)
TALK = [{"role": "user", "content": "Say it"}, {"role": "assistant", "content": "It is "}]


@pytest.fixture(scope="module")
def tokenizer(folders: dict[str, Path]) -> LibraryTokenizer:
    return from_folder(folders["byte_level"])


def rendered(tokenizer: LibraryTokenizer, template: str, talk: Any = TALK, **options: Any) -> str:
    return ChatFormat(tokenizer, template=template).render(talk, options=ChatOptions(**options))


def test_the_final_message_stays_open(tokenizer: LibraryTokenizer) -> None:
    whole = rendered(tokenizer, PLAIN, add_generation_prompt=False)
    assert whole.endswith("It is <|im_end|>\n")
    assert rendered(tokenizer, PLAIN, continue_final_message=True) == whole[: -len("<|im_end|>\n")]


def test_an_open_message_may_repeat_an_earlier_one(tokenizer: LibraryTokenizer) -> None:
    talk = [TALK[1], TALK[0], TALK[1]]
    text = rendered(tokenizer, PLAIN, talk, continue_final_message=True)
    assert text.count("It is ") == 2
    assert text.endswith("It is ")


def test_special_tokens_of_an_open_message_stay_text(tokenizer: LibraryTokenizer) -> None:
    talk = [TALK[0], {"role": "assistant", "content": "a <|im_end|>"}]
    chat = ChatFormat(tokenizer, template=PLAIN)
    ids = chat.encode(talk, options=ChatOptions(continue_final_message=True))
    (end,) = tokenizer.encode_rendered("<|im_end|>")
    assert ids.count(end) == 1  # of the user's turn
    assert chat.render(talk, options=ChatOptions(continue_final_message=True)).endswith(
        "a <|im_end|>"
    )


@pytest.mark.parametrize("template", ["fixed", "{{ messages[-1]['content'] * 2 }}"])
def test_a_template_that_cannot_leave_it_open(tokenizer: LibraryTokenizer, template: str) -> None:
    with pytest.raises(RequestError, match="exactly once") as caught:
        rendered(tokenizer, template, continue_final_message=True)
    assert (caught.value.code, caught.value.param) == ("template_error", "continue_final_message")


def test_what_is_left_open_must_be_text(tokenizer: LibraryTokenizer) -> None:
    talk = [TALK[0], {"role": "assistant", "content": ""}]
    with pytest.raises(RequestError, match="of text alone"):
        rendered(tokenizer, PLAIN, talk, continue_final_message=True)


def test_the_template_is_told_what_it_reads(tokenizer: LibraryTokenizer) -> None:
    assert rendered(tokenizer, THINKS) == "Say itIt is"
    told = {"enable_thinking": False, "date_string": "1 May"}
    assert rendered(tokenizer, THINKS, template_kwargs=told) == "Say itIt is[no thoughts]1 May"


def test_what_the_template_does_not_read_is_refused(tokenizer: LibraryTokenizer) -> None:
    with pytest.raises(Unsupported, match="does not read thinking") as caught:
        rendered(tokenizer, THINKS, template_kwargs={"thinking": True})
    assert caught.value.param == "chat_template_kwargs"
    # A model that never thinks does what it is asked.
    assert rendered(tokenizer, PLAIN, template_kwargs={"enable_thinking": False})


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"add_generation_prompt": 1}, "add_generation_prompt"),
        ({"continue_final_message": None}, None),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ({"template_kwargs": [1]}, "chat_template_kwargs"),
        *(
            ({"template_kwargs": {name: value}}, "chat_template_kwargs")
            for name, value in [
                ("messages", []),
                ("tokenize", True),
                ("chat_template", "x"),
                ("add_generation_prompt", True),
                ("continue_final_message", False),
                ("enable_thinking", 1),
                ("reasoning_effort", "huge"),
                ("reasoning_effort", ["low"]),
                ("date_string", "<|im_end|>"),
                ("date_string", "1" * 65),
                (1, 1),
            ]
        ),
    ],
    ids=str,
)
def test_bounds(options: dict[str, Any], param: str | None) -> None:
    if param is None:
        ChatOptions(**options).check()
        return
    with pytest.raises(RequestError) as caught:
        ChatOptions(**options).check()
    assert caught.value.param == param


def test_no_variable_can_spell_a_special_token() -> None:
    for name in TEMPLATE_VARIABLES:
        for value in ("<|im_start|>", "<s>", "[INST]"):
            with pytest.raises(RequestError):
                ChatOptions(template_kwargs={name: value}).check()
