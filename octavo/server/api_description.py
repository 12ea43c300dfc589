"""/openapi.json: bodies, answers and errors of every route.

Bodies are read by hand, to bound them first, and answers are written by hand, so the routes say
here what they take and give. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from octavo.server.answers import Error

JSON = "application/json"
EVENTS = "text/event-stream"
REF = "#/components/schemas/{model}"
ERRORS = {
    "400": "A field or the body is wrong; `param` names the field",
    "403": "The Host or Origin header is not of this server",
    "404": "There is no such path or model",
    "408": "The header or the body did not arrive in time",
    "413": "The body is too large",
    "415": "The body is not declared as JSON, or is compressed",
    "431": "The header is too large",
    "500": "The request failed in the server",
    "503": "Too much waits, or the server stops: try again after Retry-After",
}
OWN_ERRORS = {"529": "Too much waits: try again after Retry-After"}
WITHOUT_BODY = ("403", "408", "431", "500", "503")
# What FastAPI adds for parameters that it checks itself; ours never fail that way.
UNUSED = ("HTTPValidationError", "ValidationError")


def described(
    *bodies: type[BaseModel],
    answer: type[BaseModel],
    event: type[BaseModel] | None = None,
    also: tuple[str, ...] = (),
    refusals: Mapping[str, str] | None = None,
    error: type[BaseModel] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a route: one of `bodies` in, `answer` or a stream of `event`s out.

    `also` are statuses of errors whose body is an `answer`, too; `refusals` are statuses that this
    route alone answers with an error, and what they mean. `error` is the shape of errors of
    an API that has its own, for all statuses.
    """
    content: dict[str, Any] = {JSON: {"schema": schema(answer)}}
    if event is not None:
        # OpenAPI 3.1 cannot describe the events of a stream: they stand beside its text.
        content[EVENTS] = {"schema": {}, "x-event-schema": schema(event)}
    responses: dict[int | str, Any] = {200: {"content": content}}
    for status in also:
        responses[status] = {"description": ERRORS[status], "content": content}
    for status, meaning in (refusals or {}).items():
        told = {JSON: {"schema": schema(Error)}}
        responses[status] = {"description": meaning, "content": told}
    if error is not None:
        told = {JSON: {"schema": schema(error)}}
        for status, meaning in (ERRORS | OWN_ERRORS).items():
            responses[status] = {"description": meaning, "content": told}
    found: dict[str, Any] = {"responses": responses}
    if bodies:
        schemas = [schema(each) for each in bodies]
        one = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        body = {"required": True, "content": {JSON: {"schema": one}}}
        found["openapi_extra"] = {"requestBody": body}
    return found


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, its parts under "$defs" until `describe` moves them."""
    found = model.model_json_schema(ref_template=REF)
    parts = found.pop("$defs", {})
    return {"$ref": REF.format(model=model.__name__), "$defs": {**parts, model.__name__: found}}


def describe(app: FastAPI) -> None:
    """Complete the app's description: shared schemas in one place, errors at every route."""
    plain = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            description = plain()
            schemas = description.setdefault("components", {}).setdefault("schemas", {})
            for name in UNUSED:
                schemas.pop(name, None)
            errors = {"schema": schema(Error)}
            for path in description["paths"].values():
                for operation in path.values():
                    add_errors(operation, errors)
            gather(description["paths"], schemas)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = complete  # type: ignore[method-assign]


def add_errors(operation: dict[str, Any], content: dict[str, Any]) -> None:
    """Every error that a route may answer with, unless it says so itself."""
    responses = operation["responses"]
    responses.pop("422", None)
    has_body = "requestBody" in operation
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    wrong = {"404"} if "path" in places else {"400"} if "query" in places else set()
    for status, meaning in ERRORS.items():
        if status in WITHOUT_BODY or has_body or status in wrong:
            told = {"description": meaning, "content": {JSON: content}}
            responses.setdefault(status, told)


def gather(value: Any, schemas: dict[str, Any]) -> None:
    """Move every "$defs" in `value` to `schemas`. Equal names mean equal schemas."""
    if isinstance(value, dict):
        for name, part in value.pop("$defs", {}).items():
            assert schemas.setdefault(name, part) == part, f"two schemas are called {name}"
        for each in value.values():
            gather(each, schemas)
    elif isinstance(value, list):
        for each in value:
            gather(each, schemas)
