"""/openapi.json is whole, and what it says is what happens: generated requests against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode
from starlette.routing import Route

from octavo.server.api_description import ERRORS, OWN_ERRORS
from octavo.server.app import create_app
from octavo.server.limits import MIB
from tests.server.conftest import LIMITS
from tests.server.fake_engine import MODEL, FakeEngine

ENGINE = FakeEngine()
# Generated bodies are large, and what is too large would hide what else is wrong with them.
APP = create_app(ENGINE, limits=replace(LIMITS, body_bytes=8 * MIB))
DESCRIPTION: dict[str, Any] = APP.openapi()
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)
SEEN: Counter[tuple[str, str, int]] = Counter()
# The exhaustive phase sends each bound of each field, thousands of requests: the bad-input tests
# have those by hand.
schema.config.phases.coverage.enabled = False
EXAMPLES = 40  # at most, for each of a dozen operations


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_route_is_described() -> None:
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in APP.routes
        if isinstance(route, Route) and route.include_in_schema
        for method in route.methods or ()
        if method != "HEAD"
    }
    routes -= {("/openapi.json", "get")}
    assert routes == {
        (path, method) for path, item in DESCRIPTION["paths"].items() for method in item
    }
    assert len(routes) >= 13


def test_every_operation_tells_its_answer_and_its_errors() -> None:
    for path, item in DESCRIPTION["paths"].items():
        for method, operation in item.items():
            responses = operation["responses"]
            own = path.startswith("/v1/messages")
            assert set(responses) - {"200"} <= set(ERRORS | OWN_ERRORS if own else ERRORS), path
            assert "422" not in responses
            if path == "/ping":
                assert "content" not in responses["200"]
                continue
            if path == "/metrics":
                assert set(responses["200"]["content"]) == {"text/plain"}
                continue
            answer = responses["200"]["content"]["application/json"]["schema"]
            assert set(answer) == {"$ref"}, path
            error = responses["500"]["content"]["application/json"]["schema"]
            assert error == {"$ref": f"#/components/schemas/{'AnthropicError' if own else 'Error'}"}
            if method == "post" and path != "/reset_prefix_cache":
                assert {"400", "413", "415"} <= set(responses)
                assert operation["requestBody"]["required"]


def test_every_reference_leads_somewhere() -> None:
    found = set(references(DESCRIPTION))
    names = {f"#/components/schemas/{name}" for name in DESCRIPTION["components"]["schemas"]}
    assert found <= names
    assert "$defs" not in str(DESCRIPTION)
    # Shapes of single events are told beside the stream; nothing else may be left over.
    assert names - found == set()


def test_the_bodies_list_their_fields() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    properties = set(schemas["ChatRequest"]["properties"])
    assert {"messages", "temperature", "cache_salt", "truncate_prompt_tokens"} <= properties
    assert not schemas["ChatRequest"]["additionalProperties"]
    assert {"prompt", "echo"} <= set(schemas["CompletionRequest"]["properties"])


def help_along(case: Case) -> None:
    """Help every other right body past the rules that no schema tells."""
    body = case.body
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    if not isinstance(body, dict) or len(str(body)) % 2:
        return
    for message in body.get("messages") or ():
        message.pop("tool_calls", None)
        message.pop("tool_call_id", None)
        message["role"] = message["role"].replace("tool", "user")
        message["content"] = str(message.get("content") or "text")
    unhelpful = ("tools", "tool_choice", "stream_options", "max_completion_tokens", "top_logprobs")
    for name in (*unhelpful, "system", "thinking", "cache_control"):
        body.pop(name, None)
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    # In JSON a whole number may be written 1.0; bodies are read more strictly.
    case.body = {name: whole(value) for name, value in body.items()}


def whole(value: Any) -> Any:
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_generated_requests_are_answered_as_described(case: Case) -> None:
    ENGINE.reset()
    help_along(case)
    # A body may be right field by field and still ask for two things that exclude each other.
    answer = case.call_and_validate(excluded_checks=[CHECKS.get_one("positive_data_acceptance")])
    SEEN[case.method, case.path, answer.status_code] += 1


def test_what_was_generated_was_worth_it() -> None:
    """Right and wrong bodies both came up at each route that reads one."""
    if not SEEN:
        pytest.skip("runs after the generated requests")
    for path, item in DESCRIPTION["paths"].items():
        for method, operation in item.items():
            if "requestBody" in operation:
                assert SEEN[method.upper(), path, 200] >= 2, SEEN
                assert SEEN[method.upper(), path, 400] >= 2, SEEN
    assert sum(SEEN.values()) >= 200
