"""`/metrics`: the names, labels and edges that dashboards know; numbers that fit the requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from octavo.core.histogram import Histogram
from octavo.engine.stats import EngineStats
from octavo.server.contract import ServedEngine
from octavo.server.telemetry.buckets import token_bounds
from octavo.server.telemetry.metric import Reading
from octavo.server.telemetry.metrics import MetricsPage, escaped
from octavo.server.telemetry.own_metrics import OWN_METRICS
from octavo.server.telemetry.process import ProcessFigures
from octavo.server.telemetry.telemetry import Telemetry
from octavo.server.telemetry.traffic import Traffic
from octavo.server.telemetry.vllm_metrics import VLLM_METRICS
from tests.engine.tiny import prompt
from tests.server.conftest import Served
from tests.server.fake_engine import HANG, IDLE, FakeInfo
from tests.server.live import MODEL, serving, talker

METRICS = (*VLLM_METRICS, *OWN_METRICS)
COMPLETIONS = "/v1/completions"
CONTEXT = 512
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
Eventually = Callable[[Callable[[], bool]], None]

# vLLM's own edges, all of which dashboards may sum.
FIRST_TOKEN = [
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20),
    *(40, 80, 160, 640, 2560),
]
TOKEN = [
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40),
    80,
]
REQUEST = [
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920),
    7680,
]
LENGTHS = [1, 2, 5, 10, 20, 50, 100, 200, 500]
HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST_TOKEN,
    "inter_token_latency_seconds": TOKEN,
    "request_time_per_output_token_seconds": TOKEN,
    "e2e_request_latency_seconds": REQUEST,
    "request_queue_time_seconds": REQUEST,
    "request_inference_time_seconds": REQUEST,
    "request_prefill_time_seconds": REQUEST,
    "request_decode_time_seconds": REQUEST,
    "request_prompt_tokens": LENGTHS,
    "request_generation_tokens": LENGTHS,
    "request_max_num_generation_tokens": LENGTHS,
    "request_params_max_tokens": LENGTHS,
    "request_params_n": [1, 2, 5, 10, 20],
    "request_prefill_kv_computed_tokens": LENGTHS,
    "iteration_tokens_total": [1, *(1 << power for power in range(3, 15))],
    "kv_block_lifetime_seconds": [0.001, 1800],
    "kv_block_idle_before_evict_seconds": [0.001, 1800],
    "kv_block_reuse_gap_seconds": [0.001, 1800],
}
COUNTERS = {
    "prefix_cache_queries": set(),
    "prefix_cache_hits": set(),
    "num_preemptions": set(),
    "prompt_tokens": set(),
    "prompt_tokens_by_source": {"source"},
    "prompt_tokens_cached": set(),
    "generation_tokens": set(),
    "request_success": {"finished_reason"},
    "spec_decode_num_drafts": set(),
    "spec_decode_num_draft_tokens": set(),
    "spec_decode_num_accepted_tokens": set(),
}
GAUGES = {
    "num_requests_running": set(),
    "num_requests_waiting": set(),
    "kv_cache_usage_perc": set(),
    "cache_config_info": {
        *("block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching"),
    },
}


def scrape(http: httpx.Client) -> Samples:
    """A page that is no older than this call."""
    time.sleep(0.06)
    return samples(http.get("/metrics").text)


def samples(text: str) -> Samples:
    found = {
        (each.name, frozenset(each.labels.items())): each.value
        for family in parse(text)
        for each in family.samples
    }
    assert len(found) == sum(1 for line in text.splitlines() if not line.startswith("#"))
    return found


def value(page: Samples, name: str, **labels: str) -> float:
    """The one sample of that name with at least those labels."""
    wanted = labels.items()
    (found,) = (
        each for (known, has), each in page.items() if known == name and wanted <= dict(has).items()
    )
    return found


def body(**fields: Any) -> dict[str, Any]:
    ids = prompt(40)
    return {"model": MODEL, "prompt": ids, "max_tokens": 5, "ignore_eos": True, **fields}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("metrics")
    talker(folder)
    sizes = {"max_num_seqs": 4, "num_blocks": 24}
    with (
        serving(folder, max_model_len=CONTEXT, **sizes) as (_, url),
        httpx.Client(base_url=url, timeout=20) as http,
    ):
        yield http


# -- names --------------------------------------------------------------------------------------


def test_every_name_label_and_edge_is_there_before_the_first_request(house: httpx.Client) -> None:
    answer = house.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    page = samples(answer.text)
    labels: dict[str, set[str]] = {}
    for name, pairs in page:
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    usual = {"model_name", "engine"}
    for name, own in COUNTERS.items():
        assert labels[f"vllm:{name}_total"] == usual | own, name
    for name, own in GAUGES.items():
        assert labels[f"vllm:{name}"] == usual | own, name
    for name, edges in HISTOGRAMS.items():
        assert labels[f"vllm:{name}_bucket"] == usual | {"le"}, name
        assert labels[f"vllm:{name}_sum"] == labels[f"vllm:{name}_count"] == usual
        has = {float(dict(pairs)["le"]) for known, pairs in page if known == f"vllm:{name}_bucket"}
        assert {*map(float, edges), float("inf")} <= has, name
    finished = {
        dict(pairs)["finished_reason"]
        for name, pairs in page
        if name == "vllm:request_success_total"
    }
    assert finished == {"stop", "length", "abort", "error"}
    sources = {
        dict(pairs)["source"]
        for name, pairs in page
        if name == "vllm:prompt_tokens_by_source_total"
    }
    assert sources == {"local_compute", "local_cache_hit"}


def test_types_and_help_are_of_the_family(house: httpx.Client) -> None:
    families = {each.name: each for each in parse(house.get("/metrics").text)}
    for name in COUNTERS:
        assert families[f"vllm:{name}"].type == "counter"
    for name in GAUGES:
        assert families[f"vllm:{name}"].type == "gauge"
    for name in HISTOGRAMS:
        assert families[f"vllm:{name}"].type == "histogram"
    assert all(each.documentation for each in families.values())
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_finer_edges_below_ten_milliseconds(house: httpx.Client) -> None:
    page = samples(house.get("/metrics").text)
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
        edges = [
            float(dict(pairs)["le"]) for known, pairs in page if known == f"vllm:{name}_bucket"
        ]
        assert len([edge for edge in edges if edge < 0.01]) >= 6


def test_what_the_engine_chose_is_in_the_config(house: httpx.Client) -> None:
    page = samples(house.get("/metrics").text)
    facts = {
        "block_size": "16",
        "num_gpu_blocks": "24",
        "cache_dtype": "float32",
        "enable_prefix_caching": "True",
    }
    assert value(page, "vllm:cache_config_info", **facts, model_name=MODEL, engine="0") == 1


# -- numbers ------------------------------------------------------------------------------------


def rise(before: Samples, after: Samples, name: str, **labels: str) -> float:
    return value(after, name, **labels) - value(before, name, **labels)


def test_counters_fit_what_was_asked_and_never_fall(house: httpx.Client) -> None:
    before = scrape(house)
    usages = [house.post(COMPLETIONS, json=body()).json()["usage"] for _ in range(3)]
    after = scrape(house)
    prompt_tokens = sum(each["prompt_tokens"] for each in usages)
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in usages)
    assert (prompt_tokens, cached > 0) == (120, True)
    expected = {
        "vllm:prompt_tokens_total": prompt_tokens,
        "vllm:prompt_tokens_cached_total": cached,
        "vllm:prefix_cache_queries_total": prompt_tokens,
        "vllm:prefix_cache_hits_total": cached,
        "vllm:generation_tokens_total": 15,
        "vllm:time_to_first_token_seconds_count": 3,
        "vllm:inter_token_latency_seconds_count": 12,
        "vllm:e2e_request_latency_seconds_count": 3,
        "vllm:request_queue_time_seconds_count": 3,
        "vllm:request_prefill_time_seconds_count": 3,
        "vllm:request_decode_time_seconds_count": 3,
        "vllm:request_inference_time_seconds_count": 3,
        "vllm:request_time_per_output_token_seconds_count": 3,
        "vllm:request_prompt_tokens_sum": prompt_tokens,
        "vllm:request_generation_tokens_sum": 15,
        "vllm:request_params_max_tokens_sum": 15,
        "vllm:request_params_n_sum": 3,
        "vllm:request_prefill_kv_computed_tokens_sum": prompt_tokens - cached,
        "vllm:iteration_tokens_total_sum": rise(before, after, "octavo:computed_tokens_total"),
    }
    assert {name: rise(before, after, name) for name in expected} == expected
    assert rise(before, after, "vllm:request_success_total", finished_reason="length") == 3
    by_source = "vllm:prompt_tokens_by_source_total"
    assert rise(before, after, by_source, source="local_cache_hit") == cached
    assert rise(before, after, by_source, source="local_compute") == prompt_tokens - cached
    written = rise(before, after, "octavo:cache_written_tokens_total", kind="implicit")
    assert written + rise(before, after, "octavo:unkept_tokens_total") == prompt_tokens - cached
    answers = {"route": COMPLETIONS, "method": "POST", "status": "200"}
    assert value(after, "octavo:http_requests_total", **answers) >= 3
    monotone(before, after)


def monotone(before: Samples, after: Samples) -> None:
    for (name, labels), old in before.items():
        if name.endswith(("_total", "_bucket", "_count", "_sum")):
            assert after[name, labels] >= old, name


def test_times_add_up(house: httpx.Client) -> None:
    before = scrape(house)
    started = time.perf_counter()
    house.post(COMPLETIONS, json=body(max_tokens=20, prompt=prompt(100, seed=3)))
    spent = time.perf_counter() - started
    after = scrape(house)

    def seconds(name: str) -> float:
        return rise(before, after, f"vllm:{name}_seconds_sum")

    parts = ("request_queue_time", "request_prefill_time", "request_decode_time")
    assert seconds("request_inference_time") == pytest.approx(sum(map(seconds, parts[1:])))
    assert sum(map(seconds, parts)) <= seconds("e2e_request_latency") <= spent
    assert 0 < seconds("time_to_first_token") < seconds("e2e_request_latency")
    gaps = seconds("inter_token_latency")
    assert gaps == pytest.approx(seconds("request_decode_time"), rel=0.5)


def test_choices_count_their_prompt_once(house: httpx.Client) -> None:
    before = scrape(house)
    asked = body(n=3, prompt=prompt(40, seed=5), temperature=1.0, seed=1)
    assert len(house.post(COMPLETIONS, json=asked).json()["choices"]) == 3
    after = scrape(house)
    assert rise(before, after, "vllm:prompt_tokens_total") == 40
    assert rise(before, after, "vllm:generation_tokens_total") == 15
    assert rise(before, after, "vllm:request_success_total", finished_reason="length") == 3
    assert rise(before, after, "vllm:e2e_request_latency_seconds_count") == 1
    assert rise(before, after, "vllm:request_params_n_sum") == 3
    assert rise(before, after, "vllm:request_max_num_generation_tokens_sum") == 5
    assert rise(before, after, "octavo:copied_blocks_total") == 2  # 40 tokens: a partial block
    assert rise(before, after, "octavo:block_seconds_total") > 0


def test_a_beam_search_is_one_request_with_n_ends(house: httpx.Client) -> None:
    before = scrape(house)
    asked = body(beam_width=3, n=2, prompt=prompt(40, seed=6), temperature=0)
    assert house.post(COMPLETIONS, json=asked).status_code == 200
    after = scrape(house)
    assert rise(before, after, "vllm:prompt_tokens_total") == 40
    assert rise(before, after, "vllm:e2e_request_latency_seconds_count") == 1
    assert rise(before, after, "vllm:request_success_total", finished_reason="length") == 2


def test_evictions_and_the_ages_of_blocks(house: httpx.Client) -> None:
    before = scrape(house)
    for seed in range(10, 14):
        house.post(COMPLETIONS, json=body(prompt=prompt(200, seed=seed)))
    after = scrape(house)
    evicted = rise(before, after, "octavo:evictions_total")
    assert evicted > 12
    assert rise(before, after, "vllm:kv_block_lifetime_seconds_count") == evicted
    assert rise(before, after, "vllm:kv_block_idle_before_evict_seconds_count") == evicted
    house.post(COMPLETIONS, json=body(prompt=prompt(200, seed=13)))
    assert rise(after, scrape(house), "vllm:kv_block_reuse_gap_seconds_count") == 12


def test_blocks_in_every_state_are_all_blocks(house: httpx.Client) -> None:
    page = scrape(house)
    states = [value(page, "octavo:kv_blocks", state=each) for each in ("free", "cached", "held")]
    assert sum(states) == 24
    assert value(page, "vllm:kv_cache_usage_perc") == 0


def test_a_client_that_leaves_is_counted_as_aborted(
    house: httpx.Client, eventually: Eventually
) -> None:
    before = scrape(house)
    asked = body(max_tokens=400, stream=True, prompt=[5, 6, 7])
    with house.stream("POST", COMPLETIONS, json=asked) as answer:
        next(answer.iter_lines())
    ended = "vllm:request_success_total"
    eventually(lambda: rise(before, scrape(house), ended, finished_reason="abort") == 1)
    left = {"route": COMPLETIONS, "method": "POST", "status": "499"}
    assert value(scrape(house), "octavo:http_requests_total", **left) == 1


def test_a_refusal_counts_as_an_answer_and_as_no_request(house: httpx.Client) -> None:
    before = scrape(house)
    assert house.post(COMPLETIONS, json=body(max_tokens=-1)).status_code == 400
    assert house.get("/nowhere/CANARY").status_code == 404
    after = scrape(house)
    assert rise(before, after, "vllm:e2e_request_latency_seconds_count") == 0
    refused = {"route": COMPLETIONS, "method": "POST", "status": "400"}
    assert value(after, "octavo:http_requests_total", **refused) >= 1
    assert value(after, "octavo:http_requests_total", route="other", status="404") >= 1
    assert house.request("CANARY", "/health").status_code == 405
    assert house.request("CANARY", "/CANARY").status_code == 404
    assert value(scrape(house), "octavo:http_requests_total", method="other", status="405") == 1
    assert "CANARY" not in house.get("/metrics").text


def test_names_stay_when_idle(house: httpx.Client) -> None:
    first = scrape(house)
    second = scrape(house)
    assert first.keys() <= second.keys()
    changing = ("process_", "octavo:http_requests")
    assert {k: v for k, v in first.items() if not k[0].startswith(changing)} == {
        k: v for k, v in second.items() if not k[0].startswith(changing)
    }


# -- the page -----------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def page_over(clock: Clock, reads: list[int], *, model: str = "m") -> MetricsPage:
    traffic = Traffic(max_model_len=4096)
    traffic.first_token.add(0.02)

    def read() -> Reading:
        reads.append(1)
        facts = {"block_size": "16", "cache_dtype": "f", "enable": "True", "blocks": "9"}
        return Reading(IDLE, traffic, ProcessFigures.now(started_at=1.0), facts, 0)

    return MetricsPage(METRICS, read, labels={"model_name": model, "engine": "0"}, clock=clock)


def test_a_page_is_written_at_most_once_in_50_ms() -> None:
    clock, reads = Clock(), list[int]()
    page = page_over(clock, reads)
    assert page.text() is page.text()
    clock.now += 0.049
    page.text()
    assert len(reads) == 1
    clock.now += 0.002
    page.text()
    assert len(reads) == 2


class Bystander:
    """An engine that can only be looked at, and counts how often."""

    info = FakeInfo()

    def __init__(self) -> None:
        self.looked = 0

    def stats(self) -> EngineStats:
        self.looked += 1
        return IDLE


def test_a_scrape_only_takes_the_snapshot_and_that_once_in_50_ms() -> None:
    """Anything else that it asked of the engine would be an AttributeError."""
    engine = Bystander()
    telemetry = Telemetry(cast(ServedEngine, engine))
    started = time.monotonic()
    pages = [asyncio.run(telemetry.metrics()).body for _ in range(100)]
    assert engine.looked <= 1 + (time.monotonic() - started) / 0.05
    assert len(set(pages)) <= engine.looked


def test_labels_are_escaped() -> None:
    model = 'a"b\\c\nd'
    assert escaped(model) == r"a\"b\\c\nd"
    page = samples(page_over(Clock(), [], model=model).text().decode())
    assert value(page, "vllm:num_requests_running", model_name=model) == 0


def test_a_page_costs_the_engine_nothing_and_the_loop_little() -> None:
    """Writing it calls nothing of the engine but `stats`, and takes well under a millisecond."""
    clock = Clock()
    page = page_over(clock, [])
    page.text()
    best = 1.0
    for _ in range(20):
        clock.now += 1
        started = time.thread_time()
        page.text()
        best = min(best, time.thread_time() - started)
    assert best < 0.002


def test_buckets_are_cumulative_and_bounds_inclusive() -> None:
    histogram = Histogram((1.0, 2.0))
    for each in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.add(each)
    spread = histogram.spread()
    assert spread.cumulative() == [2, 4, 5]
    assert (spread.n, spread.total) == (5, 14.0)
    assert histogram.spread() is spread
    histogram.add(3.0)
    assert (histogram.spread().n, spread.n) == (6, 5)


@pytest.mark.parametrize(
    ("most", "bounds"), [(1, [1]), (9, [1, 2, 5]), (100, [1, 2, 5, 10, 20, 50, 100])]
)
def test_token_bounds(most: int, bounds: list[int]) -> None:
    assert list(token_bounds(most)) == bounds


def test_a_running_request_shows_before_it_ends(served: Served, eventually: Eventually) -> None:
    """TTFT and gaps do not wait for the end."""
    from octavo.engine.types import Chunk

    served.engine.script = lambda request: [Chunk(0, "a", (1,)), Chunk(0, "b", (2,)), HANG]
    before = scrape(served.http)

    async def begin() -> None:
        async with httpx.AsyncClient(base_url=served.url) as http:
            asked = {"model": "fake-model", "prompt": "x", "stream": True}
            async with http.stream("POST", COMPLETIONS, json=asked) as answer:
                await anext(answer.aiter_lines())
                await asyncio.sleep(0.1)
                after = samples((await http.get("/metrics")).text)
                assert rise(before, after, "vllm:time_to_first_token_seconds_count") == 1
                assert rise(before, after, "vllm:inter_token_latency_seconds_count") == 1
                assert rise(before, after, "vllm:e2e_request_latency_seconds_count") == 0

    asyncio.run(begin())
