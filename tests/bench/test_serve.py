"""Load over HTTP: arrivals by seed, places, every way a request can fail, and a live server."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.bench.arrivals import arrival_seconds
from octavo.bench.client import Client, checked_url
from octavo.bench.datasets import GeneratedSharedPrefix, Prompt
from octavo.bench.record import Record
from octavo.bench.serve import Traffic, measured_by, send
from octavo.core.errors import ConfigError
from tests.engine.tiny import prompt
from tests.server.live import MODEL, serving, talker

ASK = Prompt((1, 2, 3), 2)
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}


def test_poisson_arrivals() -> None:
    times = arrival_seconds(4000, 5.0, burstiness=1.0, seed=3)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == 0
    assert min(gaps) >= 0
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.1)
    # Exponential: as much spread as mean, and e^-1 of all gaps above the mean.
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.1)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_burstiness_changes_the_spread_and_not_the_rate(burstiness: float) -> None:
    times = arrival_seconds(6000, 2.0, burstiness=burstiness, seed=0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.5, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(0.5 / math.sqrt(burstiness), rel=0.1)


def test_arrivals_by_seed_and_all_at_once() -> None:
    assert arrival_seconds(9, 1.0, burstiness=1, seed=1) == arrival_seconds(
        9, 1.0, burstiness=1, seed=1
    )
    assert arrival_seconds(9, 1.0, burstiness=1, seed=1) != arrival_seconds(
        9, 1.0, burstiness=1, seed=2
    )
    assert arrival_seconds(3, math.inf, burstiness=1, seed=1) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("rate", "burstiness"), [(0, 1), (-1, 1), (math.nan, 1), (1, 0), (1, -2)])
def test_rates_out_of_bounds_are_refused(rate: float, burstiness: float) -> None:
    with pytest.raises(ConfigError):
        arrival_seconds(1, rate, burstiness=burstiness, seed=0)


@pytest.mark.parametrize("places", [1, 3, None])
def test_no_more_on_their_way_than_there_are_places(places: int | None) -> None:
    prompts = [Prompt((i,), 1) for i in range(10)]
    running, peak, begun = 0, 0, []

    async def ask(asked: Prompt) -> Record:
        nonlocal running, peak
        begun.append(asked)
        running += 1
        peak = max(peak, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return Record(prompt_tokens=asked.token_ids[0], sent_at=0.0)

    records = asyncio.run(send(ask, prompts, offsets=[0.0] * 10, max_concurrency=places))
    assert peak == (places or 10)
    assert begun == prompts
    assert [record.prompt_tokens for record in records] == list(range(10))


def test_requests_are_sent_in_the_order_of_their_times() -> None:
    prompts = [Prompt((i,), 1) for i in range(4)]
    begun: list[int] = []

    async def ask(asked: Prompt) -> Record:
        begun.append(asked.token_ids[0])
        return Record(prompt_tokens=1, sent_at=0.0)

    asyncio.run(send(ask, prompts, offsets=[0.06, 0.0, 0.04, 0.02], max_concurrency=None))
    assert begun == [1, 3, 2, 0]


def stream(*events: Any) -> str:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"])


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text}], "usage": None}


def asked(handler: Callable[[httpx.Request], httpx.Response]) -> Record:
    async def story() -> Record:
        client = Client(
            "http://127.0.0.1:1",
            model="m",
            clock=lambda: float(next(ticks)),
            transport=httpx.MockTransport(handler),
        )
        try:
            return await client.ask(ASK)
        finally:
            await client.aclose()

    ticks = itertools.count()
    return asyncio.run(story())


def test_a_streamed_answer() -> None:
    bodies: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append((request.url.path, json.loads(request.content)))
        return httpx.Response(
            200, text=stream(piece("a"), piece("b"), {"choices": [], "usage": USAGE})
        )

    record = asked(handler)
    assert record.completed
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (3, 2, 1)
    assert len(record.piece_times) == 2
    assert record.sent_at < record.piece_times[0] < record.piece_times[1] < (record.ended_at or 0)
    ((path, body),) = bodies
    assert path == "/v1/completions"
    assert (body["prompt"], body["max_tokens"], body["ignore_eos"]) == ([1, 2, 3], 2, True)


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (503, '{"error": {"message": "the queue is full"}}', "HTTP 503: the queue is full"),
        (500, "<html>", "HTTP 500"),
        (400, '{"error": "x"}', "HTTP 400"),
        (200, stream(piece("a"), {"error": {"message": "NaN"}}), "error in the stream: NaN"),
        (200, stream(piece("a")), "the stream ended without a usage"),
        (200, stream(piece("a"), "{"), "an event of the stream is no JSON object"),
        (200, stream(piece("a"), "[1]"), "an event of the stream is no JSON object"),
        (200, stream({"choices": [], "usage": USAGE | {"prompt_tokens": -1}}),
         "the usage has no token counts"),
        (200, stream({"choices": [], "usage": USAGE | {"completion_tokens": "2"}}),
         "the usage has no token counts"),
    ],
)  # fmt: skip
def test_failures_are_named(status: int, text: str, error: str) -> None:
    record = asked(lambda request: httpx.Response(status, text=text))
    assert (record.error, record.completed) == (error, False)
    assert record.ended_at is not None


def test_long_or_odd_reasons_are_cut_and_cleaned() -> None:
    body = json.dumps({"error": {"message": "\x1b[31m" + "x" * 5000}})
    record = asked(lambda request: httpx.Response(500, text=body))
    assert record.error is not None
    assert "\x1b" not in record.error
    assert len(record.error) < 250


def test_a_broken_connection_is_named() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    assert asked(handler).error == "ConnectError"


@pytest.mark.parametrize(
    ("url", "clean"),
    [("http://h:1/", "http://h:1"), ("http://h:1/v1", "http://h:1"), ("https://h", "https://h")],
)
def test_addresses(url: str, clean: str) -> None:
    assert checked_url(url) == clean


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "http://", "http://h:99999", "file:///etc"])
def test_bad_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        checked_url(url)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("serve")
    talker(folder)
    with serving(folder, max_model_len=256) as (_, url):
        yield url


def traffic(url: str, **changes: Any) -> Traffic:
    settings: dict[str, Any] = {
        "base_url": url,
        "model": None,
        "request_rate": math.inf,
        "burstiness": 1.0,
        "max_concurrency": None,
        "timeout_seconds": 30.0,
        "goodput": {},
        "seed": 0,
    }
    return Traffic(**{**settings, **changes})


def test_a_live_server(url: str) -> None:
    shape = GeneratedSharedPrefix(num_groups=2, prompts_per_group=4, system_prompt_len=96,
                                  question_len=8, output_len=5)  # fmt: skip
    prompts = shape.prompts(random.Random(0), range(5, 400))
    result = measured_by(
        traffic(url, request_rate=500.0, max_concurrency=3, goodput={"ttft": 1e6}),
        prompts,
        warm_ups=[Prompt(tuple(prompt(20)), 2)],
        settings={"seed": 0},
    )
    figures = result.figures
    assert (figures["requests"], figures["completed"], figures["failed"]) == (8, 8, 0)
    assert (figures["input_tokens"], figures["output_tokens"]) == (8 * 104, 8 * 5)
    assert figures["saved_prefill_tokens"] == 6 * 96
    assert figures["prefix_hit_rate"] == pytest.approx(6 * 96 / (8 * 104))
    assert figures["request_goodput_per_s"] == figures["request_throughput_per_s"]
    assert result.settings["model"] == MODEL
    assert result.notes == []


def test_what_the_server_refuses_is_counted_and_named(url: str) -> None:
    prompts = [Prompt(tuple(prompt(300)), 2), Prompt(tuple(prompt(9)), 2)]
    result = measured_by(traffic(url), prompts, warm_ups=(), settings={})
    assert (result.figures["completed"], result.figures["failed"]) == (1, 1)
    (note,) = result.notes
    assert note.startswith("1 failed: HTTP 400: ")
    assert "300 tokens" in note


def test_fewer_tokens_than_asked_for_are_told(url: str) -> None:
    result = measured_by(traffic(url), [Prompt(tuple(prompt(250)), 50)], warm_ups=(), settings={})
    assert result.notes == ["1 completed with another number of tokens than asked for"]


def test_another_model_and_a_closed_port_are_refused_before_the_load(url: str) -> None:
    with pytest.raises(ConfigError, match=f"has {MODEL}; give one of these"):
        measured_by(traffic(url, model="other"), [ASK], warm_ups=(), settings={})
    with pytest.raises(ConfigError, match="no model server answers"):
        measured_by(traffic("http://127.0.0.1:9"), [ASK], warm_ups=(), settings={})


def test_a_load_of_which_nothing_comes_through_has_no_figures(url: str) -> None:
    with pytest.raises(ConfigError, match="none of the 1 requests completed: HTTP 400"):
        measured_by(traffic(url), [Prompt(tuple(prompt(300)), 2)], warm_ups=(), settings={})
