"""A body may be wrong in millions of places: the work that this makes is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from octavo.core.errors import RequestError
from octavo.server.anthropic.wire import CountRequest, MessagesRequest
from octavo.server.body import MAX_MEMBERS, parse_object
from octavo.server.openai.wire import ChatRequest, CompletionRequest
from octavo.server.tokens_wire import Detokenize, TokenizeChat, TokenizeText
from octavo.server.wire_errors import MAX_PARAM_CHARS
from tests.server.conftest import Served
from tests.server.faults import CHAT, GOOD_CHAT, changed, post

BODIES = (
    ChatRequest,
    CompletionRequest,
    CountRequest,
    Detokenize,
    MessagesRequest,
    TokenizeChat,
    TokenizeText,
)
NOT_RUN = ("json_schema_input_schema", "metadata", "serialization")


def lists(schema: Any) -> Iterator[dict[str, Any]]:
    """Every list that a validator goes through."""
    if isinstance(schema, dict):
        if schema.get("type") == "list":
            yield schema
        for name, each in schema.items():
            if name not in NOT_RUN:
                yield from lists(each)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from lists(each)


@pytest.mark.parametrize("body", BODIES)
def test_every_list_of_a_body_ends_at_its_first_fault(body: type[BaseModel]) -> None:
    found = list(lists(body.__pydantic_core_schema__))
    assert found or body is TokenizeText
    assert all(each.get("fail_fast") for each in found)


def test_objects_have_a_bounded_number_of_members(served: Served) -> None:
    assert len(parse_object(object_of(MAX_MEMBERS))) == MAX_MEMBERS
    for raw in (object_of(MAX_MEMBERS + 1), b'{"metadata":%s}' % object_of(MAX_MEMBERS + 1)):
        with pytest.raises(RequestError, match="An object has 10001 members") as caught:
            parse_object(raw)
        assert caught.value.code == "invalid_json"
    assert post(served, CHAT, object_of(9000)).json()["error"]["code"] == "unknown_parameter"


def object_of(members: int) -> bytes:
    return b"{%s}" % b",".join(b'"%x":1' % number for number in range(members))


def test_a_long_name_is_not_told_in_full(served: Served) -> None:
    error = post(served, CHAT, changed(GOOD_CHAT, {"x" * 50_000: 1})).json()["error"]
    assert error["code"] == "unknown_parameter"
    assert error["param"] == "x" * MAX_PARAM_CHARS
    assert len(error["message"]) < MAX_PARAM_CHARS
