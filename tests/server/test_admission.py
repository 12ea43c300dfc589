"""The waiting room: bounds, shares, deadlines, and what they say of when to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

from octavo.core.errors import EngineError, Overloaded
from octavo.engine.types import Chunk, GenerateRequest
from octavo.server.access.admission import MAX_RETRY_SECONDS, Admission, places_of, waits
from octavo.server.access.doors import Doors
from octavo.server.access.keys import ApiKey, Keyring
from octavo.server.access.pace import MAX_EVENTS, WINDOW_SECONDS, Pace
from octavo.server.access.visitor import Visitor, visitor
from octavo.server.app import create_app
from octavo.server.errors import HttpFault
from octavo.server.limits import ServerLimits
from octavo.server.streams import Streams
from tests.server.fake_engine import HANG, MODEL, QUEUED, FakeEngine, Step, usage
from tests.server.faults import COMPLETIONS

DONE = Chunk(0, "x", (1,), finish_reason="stop", usage=usage())
FIRST = Chunk(0, "Hel", (1,))


def room(engine: FakeEngine, *, n_owners: int = 0, **limits: Any) -> Admission:
    return Admission(engine, ServerLimits(**limits), doors=Doors(), n_owners=n_owners)


def playing(*steps: Step) -> FakeEngine:
    engine = FakeEngine()
    engine.script = lambda request: steps
    return engine


def request(n_tokens: int = 10) -> GenerateRequest:
    return GenerateRequest(prompt_token_ids=[5] * n_tokens)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(story(), 10)

    asyncio.run(bounded())


def ask(app_of: FakeEngine, headers: Sequence[dict[str, str]] = ({},), **fields: Any) -> Any:
    """Answers to concurrent requests, in process."""
    limits = fields.pop("limits", ServerLimits())
    ring = fields.pop("keyring", Keyring())
    app = create_app(app_of, limits=limits, keyring=ring)

    async def story() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as http:
            body = {"model": MODEL, "prompt": [5] * 10, **fields}
            return await asyncio.gather(
                *(http.post(COMPLETIONS, json=body, headers=each) for each in headers)
            )

    return asyncio.run(story())


def test_waiting_tokens_are_bounded_and_given_back_with_the_first_answer() -> None:
    async def story() -> None:
        engine = playing(FIRST, HANG)
        front = room(engine, waiting_tokens=25)
        first = await front.submit(request(20))
        with pytest.raises(HttpFault) as caught:
            await front.submit(request(6))
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        assert "20 prompt tokens wait, and at most 25 may" in caught.value.message
        await front.submit(request(5))
        assert front.ready() == "too many prompt tokens wait"
        assert await anext(aiter(first)) == FIRST
        assert front.ready() is None
        await front.submit(request(20))

    run(story)


def test_what_waits_alone_may_be_of_any_size() -> None:
    async def story() -> None:
        front = room(playing(DONE), waiting_tokens=5)
        stream = await front.submit(request(500))
        with pytest.raises(HttpFault):
            await front.submit(request(1))
        await stream.cancel()
        await stream.cancel()
        await front.submit(request(500))

    run(story)


def test_a_refusal_by_the_engine_gives_everything_back() -> None:
    async def story() -> None:
        engine = playing(DONE)
        front = room(engine, n_owners=2, key_share=0.1)
        for refusal in (EngineError("broken"), Overloaded("full")):
            engine.refusal = refusal
            with pytest.raises((EngineError, HttpFault)) as caught:
                await front.submit(request())
            engine.refusal = None
            if isinstance(refusal, Overloaded):
                assert isinstance(caught.value, HttpFault)
                assert caught.value.status == 503
                assert dict(caught.value.headers)["retry-after"] in ("1", "2")
        await front.submit(request())  # with anything left behind, it would be over its share
        assert front._all.places == 1

    run(story)


def test_one_key_may_not_take_all() -> None:
    async def story() -> None:
        engine = playing(HANG)  # 12 places
        front = room(engine, n_owners=2, key_share=0.5, waiting_tokens=1000)
        visitor.set(Visitor("ann"))
        held = [await front.submit(request()) for _ in range(6)]
        visitor.set(Visitor("ann"))
        with pytest.raises(HttpFault, match="6 requests of this key run or wait") as caught:
            await front.submit(request())
        assert (caught.value.status, caught.value.code) == (429, "tenant_quota")
        visitor.set(Visitor("bob"))
        await front.submit(request())
        visitor.set(Visitor("ann"))
        await held[0].cancel()
        await front.submit(request())

    run(story)


def test_one_key_may_not_fill_the_waiting_room_with_tokens() -> None:
    async def story() -> None:
        front = room(playing(HANG), n_owners=2, key_share=0.5, waiting_tokens=100)
        visitor.set(Visitor("ann"))
        await front.submit(request(40))
        visitor.set(Visitor("ann"))
        with pytest.raises(HttpFault, match="40 prompt tokens of this key wait") as caught:
            await front.submit(request(20))
        assert caught.value.status == 429
        visitor.set(Visitor("bob"))
        await front.submit(request(50))

    run(story)


def test_one_request_of_many_prompts_is_served_if_it_comes_alone() -> None:
    """Else it would be told to try again for ever."""

    async def story() -> None:
        engine = playing(FIRST, HANG)
        front = room(engine, n_owners=2, key_share=0.5, waiting_tokens=25)
        n_places = int(0.5 * engine.info.max_live_sequences) + 1
        visitor.set(Visitor("a"))
        tickets = [await front.submit(request(20)) for _ in range(n_places)]
        visitor.set(Visitor("a"))
        with pytest.raises(HttpFault) as caught:
            await front.submit(request(1))
        assert caught.value.status == 429
        for each in tickets:
            await each.cancel()
        await front.submit(request(1))

    run(story)


def test_what_only_prepares_is_let_in_by_the_same_rules() -> None:
    async def story() -> None:
        engine = playing(FIRST, HANG)
        doors = Doors()
        front = Admission(engine, ServerLimits(key_share=0.5), doors=doors, n_owners=2)
        visitor.set(Visitor("a"))
        for _ in range(int(0.5 * engine.info.max_live_sequences)):
            await front.submit(request())
        visitor.set(Visitor("a"))
        for work in (front.tokenize(request()), front.detokenize([1])):
            with pytest.raises(HttpFault) as caught:
                await work
            assert caught.value.status == 429
        visitor.set(Visitor("b"))
        assert await front.tokenize(request()) == [1, 2, 3]
        doors.close()
        with pytest.raises(HttpFault) as caught:
            await front.tokenize(request())
        assert caught.value.code == "engine_closed"

    run(story)


def test_a_single_owner_has_no_share_to_keep() -> None:
    async def story() -> None:
        front = room(playing(HANG), n_owners=1, key_share=0.1)
        visitor.set(Visitor("ann"))
        for _ in range(12):
            await front.submit(request())

    run(story)


def test_429_and_its_headers_over_http() -> None:
    ring = Keyring([ApiKey.of(name, f"{name}-secret", ("infer",)) for name in ("ann", "bob")])
    engine = playing(0.1, DONE)
    limits = ServerLimits(key_share=0.17)  # two of 12 places
    keys = [{"x-api-key": f"{name}-secret"} for name in ("ann", "ann", "ann", "bob")]
    answers = ask(engine, keys, keyring=ring, limits=limits)
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
    refused = answers[2]
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json()["error"]["code"] == "tenant_quota"
    assert 1 <= int(refused.headers["retry-after"]) <= 72
    assert int(refused.headers["retry-after-ms"]) <= 1000 * int(refused.headers["retry-after"])


@pytest.mark.parametrize("stream", [True, False])
def test_a_queue_that_is_too_slow(stream: bool) -> None:
    engine = playing(QUEUED)
    (answer,) = ask(engine, stream=stream, limits=ServerLimits(queue_seconds=0.05))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")
    assert "retry-after" in answer.headers
    assert engine.cancelled == {0}


def test_what_has_begun_to_run_is_not_late_in_the_queue() -> None:
    (answer,) = ask(playing(HANG), limits=ServerLimits(queue_seconds=0.05, request_seconds=0.3))
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert answer.headers["x-should-retry"] == "false"


def test_the_callers_own_deadline() -> None:
    engine = playing(HANG)
    (answer,) = ask(engine, [{"x-request-timeout": "0.05"}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert engine.cancelled == {0}


def test_a_deadline_counts_from_the_request_not_from_each_of_its_prompts() -> None:
    async def story() -> None:
        front = room(playing(HANG))
        arrived_at = asyncio.get_running_loop().time() - 10
        visitor.set(Visitor("", 5.0, arrived_at))
        with pytest.raises(HttpFault) as caught:
            async for _ in await front.submit(request()):
                pass
        assert caught.value.status == 504

    run(story)


def test_a_deadline_after_the_first_event_is_one_error_event() -> None:
    (answer,) = ask(playing(FIRST, HANG), [{"x-request-timeout": "0.1"}], stream=True)
    events = answer.text.strip().split("\n\n")
    assert answer.status_code == 200
    assert len(events) == 2
    assert '"code": "deadline_exceeded"' in events[-1]
    assert "[DONE]" not in answer.text


def test_a_tokeniser_that_hangs_does_not_hold_the_caller() -> None:
    class Slow(FakeEngine):
        async def submit(self, request: GenerateRequest, *rest: Any, **more: Any) -> Any:
            await asyncio.sleep(30)

    (answer,) = ask(Slow(), limits=ServerLimits(queue_seconds=0.05))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")


def test_closed_doors_answer_and_close_the_connection() -> None:
    async def story() -> None:
        doors = Doors()
        front = Admission(playing(DONE), ServerLimits(), doors=doors)
        doors.leave()
        assert front.ready() == "The server is shutting down."
        await front.submit(request())
        doors.close()
        with pytest.raises(HttpFault) as caught:
            await front.submit(request())
        assert caught.value.status == 503
        assert dict(caught.value.headers)["connection"] == "close"

    run(story)


def test_several_prompts_are_accepted_together_or_not_at_all() -> None:
    async def story() -> None:
        front = room(playing(HANG), waiting_tokens=25)
        with pytest.raises(HttpFault):
            await Streams.open(front, [request(), request(), request()])
        assert front._all.places == 0
        assert front._all.tokens == 0

    run(story)


def test_pace() -> None:
    pace = Pace()
    assert pace.seconds_for(5, 0.0) is None
    pace.note(100, 0.0)
    assert pace.seconds_for(5, 1.0) is None  # one event has no duration
    pace.note(10, 1.0)
    pace.note(10, 2.0)
    assert pace.seconds_for(5, 2.0) == pytest.approx(0.5)
    assert pace.seconds_for(5, 2.0 + WINDOW_SECONDS + 1) is None
    for _ in range(2 * MAX_EVENTS):
        pace.note(1, 50.0)
    assert len(pace._events) == MAX_EVENTS


def test_refusals_do_not_make_the_wait_look_short() -> None:
    async def story() -> None:
        engine = playing(HANG)
        front = room(engine, n_owners=2)
        for _ in range(5):
            await (await front.submit(request())).cancel()
            await asyncio.sleep(0.02)
        served = front._wait_for_places(10)
        assert served is not None
        engine.refusal = Overloaded("full")
        for _ in range(200):
            with pytest.raises(HttpFault):
                await front.submit(request())
        after = front._wait_for_places(10)
        assert after is not None
        assert after >= served

    run(story)


def test_when_to_come_back_has_bounds() -> None:
    for seconds in (None, 0.0, 0.001, 3.0, 1e9):
        whole, exact = (int(value) for _, value in waits(seconds))
        assert 1 <= whole <= MAX_RETRY_SECONDS * 1.2
        assert exact <= whole * 1000


def test_places() -> None:
    assert places_of(GenerateRequest(prompt="a")) == 1
