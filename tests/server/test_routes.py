"""The small routes: models, health, readiness, the API description."""

from __future__ import annotations

from octavo.server.listen import own_hosts
from tests.server.conftest import Served
from tests.server.fake_engine import MODEL


def test_models(served: Served) -> None:
    (card,) = served.client.models.list().data
    assert (card.id, card.object, card.owned_by) == (MODEL, "model", "octavo")
    assert served.client.models.retrieve(MODEL) == card
    assert served.http.get("/v1/models").json()["data"][0]["max_model_len"] == 512


def test_health_and_ready(served: Served) -> None:
    assert served.http.get("/health").status_code == 200
    assert served.http.get("/ready").status_code == 200
    served.engine.not_ready = "draining"
    answer = served.http.get("/ready")
    assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
    assert served.http.get("/health").status_code == 200
    served.engine.is_alive = False
    assert served.http.get("/health").status_code == 503


def test_request_ids_are_ours(served: Served) -> None:
    answers = [served.http.get("/health", headers={"x-request-id": "mine"}) for _ in range(2)]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2
    assert "mine" not in ids


def test_the_callers_id_is_a_label(served: Served) -> None:
    body = {"model": MODEL, "prompt": "a"}
    served.http.post("/v1/completions", json=body, headers={"x-request-id": "m" * 500})
    assert served.engine.requests[0].id == "m" * 128


def test_hosts_follow_the_address() -> None:
    assert own_hosts("127.0.0.1") == {"localhost", "127.0.0.1", "::1"}
    assert own_hosts("0.0.0.0") is None
