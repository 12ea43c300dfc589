"""Who may do what: every route, odd paths, both headers, and shares of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from octavo.server.access.auth import OPEN, SCOPE_OF
from octavo.server.access.keys import SCOPES, ApiKey, Keyring
from octavo.server.app import create_app
from tests.engine.tiny import prompt
from tests.server.fake_engine import MODEL, FakeEngine
from tests.server.faults import COMPLETIONS
from tests.server.live import serving, talker

SECRETS = {scope: f"secret-of-{scope}" for scope in SCOPES}
RING = Keyring([ApiKey.of(scope, secret, (scope,)) for scope, secret in SECRETS.items()])
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
BODY = {"model": MODEL, "prompt": "a"}
ODD = [
    "//v1/completions",
    "/v1//completions",
    "/v1/completions/",
    "/v1/completions.",
    "/v1/./completions",
    "/health/../v1/completions",
    "/health/%2e%2e/v1/completions",
    "/v1%2Fcompletions",
    "/V1/completions",
    "/%76%31/completions",
    "/v1/completions%00",
    "/v1/completions;/health",
    "/v1/completions?/health",
    "/v1/completions#/health",
    "/health%3F/v1/completions",
    "/v1/models/..%2f..%2fmetrics",
    "/healthz",
    "/health/",
]


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def client(engine: FakeEngine) -> Iterator[TestClient]:
    with TestClient(create_app(engine, keyring=RING)) as client:
        yield client


def bearer(scope: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[scope]}"}


def test_every_route_wants_its_scope(client: TestClient) -> None:
    routes = [route for route in client.app.routes if hasattr(route, "path")]
    assert len(routes) >= 15
    for route in routes:
        path = route.path.replace("{model:path}", "x/y")
        method = min(route.methods - {"HEAD"})
        if path in OPEN:
            assert client.request(method, path).status_code == 200
            continue
        assert client.request(method, path).status_code == 401, path
        wrong = client.request(method, path, headers={"authorization": "Bearer wrong-secret"})
        assert wrong.status_code == 401, path
        needed = SCOPE_OF.get(path, "infer" if path.startswith("/v1/models/") else "admin")
        for scope in SCOPES:
            answer = client.request(method, path, headers=bearer(scope))
            assert (answer.status_code == 403) is (scope != needed), (path, scope)
            assert answer.status_code != 401
            if scope != needed:
                assert "needs a key with the scope" in answer.json()["error"]["message"]


def test_a_new_route_is_closed_until_it_is_opened() -> None:
    app = create_app(FakeEngine(), keyring=RING)
    app.get("/new")(lambda: {})
    with TestClient(app) as client:
        assert client.get("/new").status_code == 401
        assert client.get("/new", headers=bearer("infer")).status_code == 403
        assert client.get("/new", headers=bearer("admin")).status_code == 200


@pytest.mark.parametrize("path", ODD)
def test_odd_paths_pass_nobody(client: TestClient, engine: FakeEngine, path: str) -> None:
    engine.reset()
    for method in METHODS:
        answer = client.request(method, f"http://testserver{path}", json=BODY)
        assert answer.status_code == 401, (method, path, answer.text)
        metrics = client.request(
            method, f"http://testserver{path}", json=BODY, headers=bearer("metrics")
        )
        assert metrics.status_code in (403, 404), (method, path)
    assert not engine.requests


@pytest.mark.parametrize("host", ["x/health", "x/health?", "x#/health", "health", "x:80/health?y="])
def test_the_host_header_decides_nothing(client: TestClient, host: str) -> None:
    assert client.post(COMPLETIONS, json=BODY, headers={"host": host}).status_code == 401


def test_an_unknown_path_is_told_to_those_with_a_key(client: TestClient) -> None:
    answer = client.get("/v1/nothing", headers=bearer("infer"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


def test_both_headers_and_what_they_must_look_like(client: TestClient) -> None:
    secret = SECRETS["infer"]
    good = [
        {"authorization": f"Bearer {secret}"},
        {"authorization": f"bearer   {secret} "},
        {"x-api-key": secret},
        {"x-api-key": secret, "authorization": f"Bearer {secret}"},
    ]
    for headers in good:
        assert client.post(COMPLETIONS, json=BODY, headers=headers).status_code == 200
    bad: list[Any] = [
        {"authorization": secret},
        {"authorization": f"Basic {secret}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"x-api-key": ""},
        {"x-api-key": secret + "x" * 10_000},
        {"x-api-key": secret, "authorization": "Bearer another-secret"},
        [("x-api-key", secret), ("x-api-key", "another-secret")],
        {"cookie": f"key={secret}"},
    ]
    for headers in bad:
        answer = client.post(COMPLETIONS, json=BODY, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert secret not in answer.text
    assert client.post(f"{COMPLETIONS}?api_key={secret}", json=BODY).status_code == 401


def test_the_keys_id_is_noted(engine: FakeEngine) -> None:
    seen: list[str | None] = []
    app = create_app(engine, keyring=RING)

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        seen.append(scope.get("octavo.key_id"))

    with TestClient(noting) as client:
        client.post(COMPLETIONS, json=BODY, headers=bearer("infer"))
        client.post(COMPLETIONS, json=BODY)
    assert seen == ["infer", None, None]  # the last one is the lifespan


def test_without_keys_nobody_is_asked() -> None:
    with TestClient(create_app(FakeEngine())) as client:
        assert client.post(COMPLETIONS, json=BODY).status_code == 200


@pytest.mark.parametrize("share", [False, True])
def test_the_salt_names_the_key(engine: FakeEngine, share: bool) -> None:
    engine.reset()
    with TestClient(create_app(engine, keyring=RING, share_cache=share)) as client:
        for salt in ({}, {"cache_salt": "mine"}):
            client.post(COMPLETIONS, json=BODY | salt, headers=bearer("infer"))
    salts = [request.salt for request in engine.requests]
    assert salts == (["", "mine"] if share else ["infer/", "infer/mine"])


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "86401", "soon", ""])
def test_a_timeout_that_is_none(client: TestClient, value: str) -> None:
    headers = {**bearer("infer"), "x-request-timeout": value}
    answer = client.post(COMPLETIONS, json=BODY, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-request-timeout"


@pytest.mark.parametrize("share", [False, True])
def test_two_keys_never_hit_each_others_blocks(tmp_path: Path, share: bool) -> None:
    talker(tmp_path)
    ring = Keyring([ApiKey.of(name, f"secret-of-{name}", ("infer",)) for name in ("ann", "bob")])
    with (
        serving(tmp_path, max_model_len=256, app={"keyring": ring, "share_cache": share}) as (
            _,
            url,
        ),
        httpx.Client(base_url=url, timeout=20) as http,
    ):

        def cached(name: str, **fields: Any) -> int:
            body = {"model": "tiny", "prompt": prompt(100), "max_tokens": 2, **fields}
            headers = {"x-api-key": f"secret-of-{name}"}
            usage = http.post(COMPLETIONS, json=body, headers=headers).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert cached("ann") == 0
        assert cached("ann") == 96
        # Nobody can name another's salt either.
        assert [cached("bob", cache_salt=salt) for salt in ("ann/", "ann", "/ann")] == [0, 0, 0]
        assert cached("bob") == (96 if share else 0)
        assert cached("bob") == 96
        assert cached("ann", cache_salt="x") == 0
        assert cached("bob", cache_salt="x") == (96 if share else 0)
