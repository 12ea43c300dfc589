"""vLLM's small routes: their paths, fields and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import octavo
from octavo.core.errors import Overloaded
from octavo.engine.chat_options import ChatOptions
from octavo.engine.types import Chunk
from tests.server.conftest import Served
from tests.server.fake_engine import MODEL, usage
from tests.server.faults import ABSENT, CHAT, GOOD_CHAT, changed, check, post

USER = {"role": "user", "content": "hi"}


def test_tokenize_a_prompt(served: Served) -> None:
    answer = served.http.post("/tokenize", json={"model": MODEL, "prompt": "hé"})
    assert answer.json() == {
        "count": 3,
        "max_model_len": 512,
        "tokens": [104, 195, 169],
        "token_strs": None,
    }
    assert served.engine.requests[0].add_special_tokens
    body = {"prompt": "hi", "add_special_tokens": False, "return_token_strs": True}
    assert served.http.post("/tokenize", json=body).json()["token_strs"] == ["h", "i"]
    assert not served.engine.requests[1].add_special_tokens


def test_tokenize_nothing(served: Served) -> None:
    assert served.http.post("/tokenize", json={"prompt": ""}).json()["count"] == 0


def test_tokenize_a_conversation(served: Served) -> None:
    body: dict[str, Any] = {"messages": [{"role": "developer", "content": "a"}, USER]}
    body |= {"add_generation_prompt": False, "chat_template_kwargs": {"thinking": False}}
    assert served.http.post("/tokenize", json=body).status_code == 200
    (request,) = served.engine.requests
    assert request.messages == [{"role": "system", "content": "a"}, USER]
    assert request.chat == ChatOptions(
        add_generation_prompt=False, template_kwargs={"thinking": False}
    )


def test_a_large_prompt_is_read_and_answered_in_threads(served: Served) -> None:
    answer = served.http.post("/tokenize", json={"prompt": "a" * 50_000}).json()
    assert answer["count"] == len(answer["tokens"]) == 50_000


def test_detokenize(served: Served) -> None:
    answer = served.http.post("/detokenize", json={"tokens": [104, 195, 169]})
    assert answer.json() == {"prompt": "hé"}
    assert served.http.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "fields", "status", "code", "param"),
    [
        ("/tokenize", {}, 400, "missing_required_parameter", "prompt"),
        ("/tokenize", {"prompt": 5}, 400, "invalid_type", "prompt"),
        ("/tokenize", {"prompt": ["a"]}, 400, "invalid_type", "prompt"),
        ("/tokenize", {"prompt": "\ud800"}, 400, "invalid_encoding", "prompt"),
        ("/tokenize", {"prompt": "a", "model": "gpt-5"}, 404, "model_not_found", "model"),
        ("/tokenize", {"prompt": "a", "messages": [USER]}, 400, "unknown_parameter", "prompt"),
        ("/tokenize", {"prompt": "a", "max_tokens": 1}, 400, "unknown_parameter", "max_tokens"),
        ("/tokenize", {"messages": []}, 400, "array_below_min_length", "messages"),
        (
            "/tokenize",
            {"messages": [USER], "chat_template": "x"},
            400,
            "unsupported_parameter",
            "chat_template",
        ),
        (
            "/tokenize",
            {
                "messages": [USER],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            400,
            "conflicting_parameters",
            "continue_final_message",
        ),
        ("/detokenize", {}, 400, "missing_required_parameter", "tokens"),
        ("/detokenize", {"tokens": "a"}, 400, "invalid_type", "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "integer_below_min_value", "tokens.[0]"),
        ("/detokenize", {"tokens": [2**31]}, 400, "integer_above_max_value", "tokens.[0]"),
        ("/detokenize", {"tokens": [1.5]}, 400, "invalid_type", "tokens.[0]"),
        ("/detokenize", {"tokens": [256]}, 400, "invalid_value", "tokens"),
    ],
)
def test_wrong_bodies(
    served: Served, path: str, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    check(post(served, path, changed({}, fields)), status, code, param)


def test_a_full_queue_tokenizes_nothing(served: Served) -> None:
    served.engine.refusal = Overloaded("the queue is full")
    check(post(served, "/tokenize", changed({}, {"prompt": "a"})), 503, "overloaded", None)


def test_version(served: Served) -> None:
    assert served.http.get("/version").json() == {"version": octavo.__version__}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_ping_says_with_its_status_whether_the_engine_lives(served: Served, method: str) -> None:
    answer = served.http.request(method, "/ping")
    assert (answer.status_code, answer.content) == (200, b"")
    served.engine.is_alive = False
    assert served.http.request(method, "/ping").status_code == 503


def test_all_methods_of_a_path_are_told(served: Served) -> None:
    assert served.http.put("/ping").headers["allow"] == "GET, POST"


def test_load_counts_what_is_being_answered(
    served: Served, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    def load() -> int:
        return int(served.http.get("/load").json()["server_load"])

    eventually(lambda: load() == 0)
    last = Chunk(0, "Hello", (72,), finish_reason="stop", usage=usage())
    served.engine.script = lambda request: [
        2.0,
        last,
    ]  # long enough to be seen together on a busy machine
    streamed = changed(GOOD_CHAT, {"stream": True})
    bodies = (streamed, changed(GOOD_CHAT, {}))
    threads = [threading.Thread(target=post, args=(served, CHAT, body)) for body in bodies]
    for thread in threads:
        thread.start()
    eventually(lambda: load() == 2)
    for thread in threads:
        thread.join()
    eventually(lambda: load() == 0)
    post(served, CHAT, changed(GOOD_CHAT, {"model": ABSENT}))
    eventually(lambda: load() == 0)


def test_reset_prefix_cache_says_what_stays(served: Served) -> None:
    for query in ("", "?reset_running_requests=false&reset_external=False"):
        answer = served.http.post(f"/reset_prefix_cache{query}")
        assert answer.status_code == 200
        assert answer.json() == {"freed_blocks": 7, "held_blocks": 2}
    assert served.http.get("/reset_prefix_cache").status_code == 405


@pytest.mark.parametrize("name", ["reset_running_requests", "reset_external", "other"])
def test_nothing_else_is_reset(served: Served, name: str) -> None:
    answer = served.http.post("/reset_prefix_cache", params={name: "true"})
    check(answer, 400, "unsupported_parameter", name)
