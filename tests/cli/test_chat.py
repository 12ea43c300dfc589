"""`octavo chat` over a fake engine: the conversation, its commands and Ctrl-C."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable

import pytest

from octavo.core.errors import PromptTooLong
from octavo.engine.types import Chunk
from tests.cli.conftest import FakeLocal, Result

Talk = Callable[..., Result]


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def talk(octavo: Callable[..., Result], engine: FakeLocal, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Say the lines, one after the other, then end the input."""

    def run(*lines: str, flags: tuple[str, ...] = ()) -> Result:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return octavo("chat", "m", *flags)

    return run


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_turns_build_on_each_other(talk: Talk, engine: FakeLocal) -> None:
    done = talk("one", "", "two")
    assert done.code == 0
    assert [request.messages for request in engine.requests] == [
        [user("one")],
        [user("one"), assistant("Hello"), user("two")],
    ]
    assert done.out.count("Hello\n") == 2
    assert "prompt 32 cached + 8 new tokens · 3 generated · TTFT 0.000 s" in done.out
    assert "tokens/s" in done.out
    assert engine.closed


def test_system_message_and_reset(talk: Talk, engine: FakeLocal) -> None:
    talk("one", "/reset", "two", flags=("--system", "Be brief."))
    system = {"role": "system", "content": "Be brief."}
    assert [request.messages for request in engine.requests] == [
        [system, user("one")],
        [system, user("two")],
    ]


def test_commands(talk: Talk, engine: FakeLocal) -> None:
    done = talk("/what", "/exit", "never said")
    assert done.code == 0
    assert done.out.count("/reset starts again") == 2
    assert engine.requests == []


def test_ctrl_c_ends_the_answer_and_not_the_program(talk: Talk, engine: FakeLocal) -> None:
    whole = engine.steps
    engine.steps = [Chunk(0, "Hel", (1,)), press_ctrl_c, Chunk(0, "l", (2,)), Chunk(0, "o", (3,))]
    done = talk("one", "two")
    assert done.code == 0
    assert engine.ended_early == 2
    assert "2 generated" in done.out
    assert "interrupted" in done.out
    # What was said so far stays in the conversation.
    assert engine.requests[1].messages == [user("one"), assistant("Hell"), user("two")]
    assert whole != engine.steps


def test_a_refused_turn_leaves_the_conversation_as_it_was(talk: Talk, engine: FakeLocal) -> None:
    engine.refusals = [None, PromptTooLong("600 tokens of 512."), None]
    done = talk("one", "far too long", "two")
    assert done.code == 0
    assert done.err == "octavo: 600 tokens of 512. /reset starts a new conversation.\n"
    assert engine.requests[2].messages == [user("one"), assistant("Hello"), user("two")]
