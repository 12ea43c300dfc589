"""The engine under load in this process, on a clock that counts its readings."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from octavo.bench.datasets import Prompt, RandomPrompts
from octavo.bench.driver import Driver, run
from octavo.bench.latency import LatencySettings, latency
from octavo.bench.throughput import throughput
from octavo.engine.build import Built
from tests.bench.conftest import PLAIN_IDS
from tests.engine.tiny import built, prompt


def load(n: int, *, input_len: int = 20, output_len: int = 6) -> list[Prompt]:
    shape = RandomPrompts(num_prompts=n, input_len=input_len, output_len=output_len,
                          range_ratio=0.5)  # fmt: skip
    return shape.prompts(random.Random(1), PLAIN_IDS)


def test_every_request_yields_what_was_asked_for(tiny: Built) -> None:
    prompts = load(9)
    before = tiny.engine.stats().generated_tokens
    records = run(tiny.engine, prompts, clock=itertools.count().__next__)
    assert [one.output_tokens for one in records] == [p.output_tokens for p in prompts]
    assert [one.prompt_tokens for one in records] == [len(p.token_ids) for p in prompts]
    total = sum(p.output_tokens for p in prompts)
    assert tiny.engine.stats().generated_tokens - before == total
    for one in records:
        assert one.completed
        assert one.sent_at < one.piece_times[0]
        assert one.piece_times == sorted(one.piece_times)
        assert len(one.piece_times) == one.output_tokens
        assert one.ended_at == one.piece_times[-1]


def test_a_request_that_might_go_on_is_ended_at_its_length(tiny: Built) -> None:
    prompts = load(5)
    records = run(tiny.engine, prompts, max_tokens=50, clock=itertools.count().__next__)
    assert [one.output_tokens for one in records] == [p.output_tokens for p in prompts]
    assert all(one.completed for one in records)


def test_what_the_engine_refuses_is_counted_and_named(tiny: Built) -> None:
    too_long = Prompt(tuple(prompt(5000)), 4)
    records = run(tiny.engine, [too_long, *load(2)])
    assert [one.completed for one in records] == [False, True, True]
    assert "5000 tokens" in (records[0].error or "")


def test_cached_tokens_are_the_receipts(tiny: Built) -> None:
    shared = Prompt(tuple(prompt(70)), 3)
    (first,) = run(tiny.engine, [shared])
    (second,) = run(tiny.engine, [shared])
    assert (first.cached_tokens, second.cached_tokens) == (0, 64)


def test_a_load_larger_than_the_queue_gets_through(tiny_folder: Path) -> None:
    small = built(tiny_folder, skip_tokenizer_init=True, max_num_seqs=2, max_num_queued_reqs=1)
    records = run(small.engine, load(8))
    assert len(records) == 8
    assert all(one.completed for one in records)


def test_ending_twice_or_late_does_nothing(tiny: Built) -> None:
    driver = Driver(tiny.engine)
    record = driver.submit(Prompt(tuple(prompt(8)), 100))
    driver.step()
    driver.end(record)
    driver.end(record)
    while driver.busy:
        driver.step()
    driver.end(record)
    assert not driver.busy
    assert record.ended_at is not None
    assert 0 < record.output_tokens < 100


def test_throughput_adds_up(tiny: Built) -> None:
    prompts = [Prompt(tuple(prompt(70)), 4)] * 3
    result = throughput(tiny, prompts, settings={"seed": 0})
    figures = result.figures
    assert (figures["completed"], figures["input_tokens"], figures["output_tokens"]) == (3, 210, 12)
    assert figures["saved_prefill_tokens"] == 2 * 64  # whole blocks, for all but the first
    assert result.settings["seed"] == 0
    assert result.settings["max_num_seqs"] == tiny.info.max_num_seqs


def test_rounds_of_latency_find_nothing_in_the_cache(tiny: Built) -> None:
    settings = LatencySettings(batch_size=2, input_len=40, output_len=3, num_iters_warmup=1,
                               num_iters=3, seed=0)  # fmt: skip
    before = tiny.engine.stats()
    result = latency(tiny, settings, vocabulary=PLAIN_IDS)
    after = tiny.engine.stats()
    assert after.sequences - before.sequences == 2 * 4
    assert after.prefix_hit_tokens == before.prefix_hit_tokens
    (whole, each) = result.tables
    assert [row[0] for row in whole.rows] == ["mean", "P10", "P25", "P50", "P75", "P90", "P99"]
    assert [row[0] for row in each.rows] == ["TTFT", "TPOT", "ITL", "E2E"]
    at = result.figures["batch_latency_ms"]
    assert at["p10"] <= at["p50"] <= at["p99"]
