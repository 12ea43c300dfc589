"""From Anthropic's bodies to neutral requests: turns, tools, places to keep, the agents' header."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from octavo.engine.breakpoints import Breakpoint
from octavo.engine.types import GenerateRequest
from octavo.server.anthropic.jobs import Translator
from octavo.server.app import create_app
from octavo.server.limits import ServerLimits
from tests.server.fake_engine import MODEL, FakeEngine, FakeInfo

HI = [{"role": "user", "content": "hi"}]

KEEP = {"cache_control": {"type": "ephemeral"}}
KEEP_LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
HEADER = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def use(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "f", "input": {"é": 1}, **more}


def result(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, **more}


def translated(*turns: Any, keep: bool = False, **fields: Any) -> GenerateRequest:
    roles = [{"role": role, "content": content} for role, content in turns]
    body = {"model": MODEL, "max_tokens": 5, "messages": roles, **fields}
    translator = Translator(FakeInfo(), keep_agent_headers=keep)
    job = translator.message(json.dumps(body).encode(), "label")
    assert job.request.id == "label"
    counted = translator.count(
        json.dumps({k: v for k, v in body.items() if k != "max_tokens"}).encode(), ""
    )
    assert counted.request.messages == job.request.messages
    return job.request


def texts(request: GenerateRequest) -> list[tuple[str, list[str]]]:
    assert request.messages is not None
    return [(m["role"], [part["text"] for part in m["content"]]) for m in request.messages]


def test_neighbours_of_one_role_are_one_turn() -> None:
    request = translated(
        ("user", "a"),
        ("user", [text("b"), text("c")]),
        ("assistant", "d"),
        ("user", "e"),
        system=[text("s"), text("t")],
    )
    assert texts(request) == [
        ("system", ["s", "t"]),
        ("user", ["a", "b", "c"]),
        ("assistant", ["d"]),
        ("user", ["e"]),
    ]


def test_calls_and_results() -> None:
    request = translated(
        ("user", "a"),
        ("assistant", [text("b"), use("t1"), use("t2"), text("c")]),
        ("user", [result("t2", content=[text("x"), text("y")], is_error=True), result("t1")]),
        ("user", "go on"),
    )
    assert texts(request)[1:] == [
        ("assistant", ["b", "c"]),
        ("tool", ["Error: x", "y"]),
        ("tool", [""]),
        ("user", ["go on"]),
    ]
    assert request.messages is not None
    calls = request.messages[1]["tool_calls"]
    assert [call["id"] for call in calls] == ["t1", "t2"]
    assert calls[0]["function"] == {"name": "f", "arguments": '{"é": 1}'}
    assert [m.get("tool_call_id") for m in request.messages[2:]] == ["t2", "t1", None]


def test_places_to_keep() -> None:
    request = translated(
        ("user", [text("a"), text("b", **KEEP_LONG)]),
        ("assistant", [text("c"), use("t1"), use("t2", **KEEP), text("d")]),
        ("user", [result("t1", content="r"), result("t2", content=[text("x"), text("y")], **KEEP)]),
        system=[text("s", **KEEP_LONG)],
    )
    assert request.breakpoints == (
        Breakpoint(0, 0, 3600),
        Breakpoint(1, 1, 3600),
        Breakpoint(2, 3, 300),  # behind the two texts and the first call
        Breakpoint(4, 1, 300),
    )


def test_keeping_the_whole_request() -> None:
    control = {"type": "ephemeral", "ttl": "1h"}
    turns = ("user", [text("a"), text("b")])
    assert translated(turns, cache_control=control).breakpoints == (Breakpoint(0, 1, 3600),)
    marked = ("user", [text("a"), text("b", **KEEP_LONG)])
    assert translated(marked, cache_control=control).breakpoints == (Breakpoint(0, 1, 3600),)


@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f"{HEADER}\nYou help.\nAlways.", ["You help.\nAlways."]),
        ([text(HEADER), text("You help.", **KEEP)], ["You help."]),
        ([text(HEADER, **KEEP), text("You help.")], ["You help."]),
        ([text(f"{HEADER}\nrest"), text("You help.")], ["rest", "You help."]),
        (HEADER, None),
        # Only at the very beginning, and only this prefix.
        ([text("You help."), text(HEADER)], ["You help.", HEADER]),
        (f" {HEADER}\nYou help.", [f" {HEADER}\nYou help."]),
        ("x-anthropic-other: 1\nYou help.", ["x-anthropic-other: 1\nYou help."]),
    ],
)
def test_the_agents_header_is_dropped(system: Any, left: list[str] | None) -> None:
    request = translated(("user", f"{HEADER}\nhi"), system=system)
    kept = [] if left is None else [("system", left)]
    assert texts(request) == [*kept, ("user", [f"{HEADER}\nhi"])]
    whole = [system] if isinstance(system, str) else [block["text"] for block in system]
    assert texts(translated(("user", "a"), system=system, keep=True))[0] == ("system", whole)


def test_a_mark_on_the_dropped_header_keeps_nothing() -> None:
    request = translated(("user", "a"), system=[text(HEADER, **KEEP), text("s")])
    assert request.breakpoints == ()


@pytest.mark.parametrize("clamps", [True, False])
def test_the_operator_says_whether_max_tokens_is_cut(clamps: bool) -> None:
    raw = json.dumps({"model": MODEL, "max_tokens": 10**6, "messages": HI}).encode()
    job = Translator(FakeInfo(), clamp_max_tokens=clamps).message(raw, "")
    assert job.request.clamp_max_tokens is clamps


def test_the_routes_hand_the_operators_choice_on() -> None:
    engine = FakeEngine()
    app = create_app(engine, limits=ServerLimits(clamp_max_tokens=False))

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as http:
            body = {"model": MODEL, "max_tokens": 10**6, "messages": HI}
            assert (await http.post("/v1/messages", json=body)).status_code == 200

    asyncio.run(ask())
    assert not engine.requests[-1].clamp_max_tokens
