"""What a request is told about its prompt follows from its receipt and adds up."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.engine.engine import Engine
from octavo.engine.types import Chunk, GenerateRequest
from tests.checkpoints import tiny_llama
from tests.engine.tiny import GREEDY, assert_empty, built, prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


def parts(chunks: list[Chunk]) -> tuple[int, int, int]:
    """(read, written, neither) of the prompt, as told; checked against the leader's receipt."""
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage is not None]
    (receipt,) = [c.receipt for c in chunks if c.choice == 0 and c.receipt is not None]
    assert (usage.cached_tokens, usage.cache_write_tokens) == (receipt.read, receipt.written)
    assert usage.cached_tokens + usage.cache_write_tokens + receipt.unkept == usage.prompt_tokens
    return usage.cached_tokens, usage.cache_write_tokens, receipt.unkept


def answers(engine: Engine, *requests: tuple[list[int], int]) -> list[tuple[int, int, int]]:
    """The parts of prompts that enter together, (tokens, n) each."""
    told: list[list[Chunk]] = []
    for tokens, n in requests:
        params = replace(GREEDY, n=n, max_tokens=5)
        chunks: list[Chunk] = []
        told.append(chunks)
        request = GenerateRequest(prompt_token_ids=tokens, params=params)
        engine.submit(engine.prepare(request), chunks.append)
    while engine.busy:
        engine.step()
    assert_empty(engine)
    return [parts(chunks) for chunks in told]


def test_a_prompt_is_written_and_then_read_up_to_its_last_whole_block(folder: Path) -> None:
    engine = built(folder, skip_tokenizer_init=True).engine
    tokens = prompt(40)
    assert answers(engine, (tokens, 1)) == [(0, 32, 8)]
    assert answers(engine, (tokens, 3)) == [(32, 0, 8)]
    assert answers(engine, (tokens + prompt(30, seed=1), 1)) == [(32, 32, 6)]
    # Together: a long one waits for the other's blocks, a short one is computed side by side.
    long, short = prompt(200, seed=2), prompt(50, seed=3)
    assert answers(engine, (long, 1), (long, 1)) == [(0, 192, 8), (192, 0, 8)]
    assert answers(engine, (short, 1), (short, 1)) == [(0, 48, 2), (0, 0, 50)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_prefix_caching": False},
        {"num_blocks": 24, "max_num_batched_tokens": 16, "max_num_seqs": 4},
        {"share_in_flight": False, "max_num_batched_tokens": 64, "max_num_seqs": 8},
    ],
    ids=str,
)
def test_the_parts_add_up_in_any_traffic(folder: Path, options: dict[str, Any]) -> None:
    engine = built(folder, skip_tokenizer_init=True, **options).engine
    source = random.Random(3)
    totals = [0, 0, 0]
    for _ in range(6):
        requests = []
        for _ in range(source.randrange(1, 7)):
            stem = prompt(source.choice([16, 33, 64]), seed=source.randrange(2))
            tail = prompt(source.randrange(1, 40), seed=source.randrange(4))
            requests.append((stem + tail, source.choice([1, 1, 2])))
        for told in answers(engine, *requests):
            totals = [total + part for total, part in zip(totals, told, strict=True)]
    read, written, neither = totals
    assert neither > 0
    assert (read > 0, written > 0) == (options.get("enable_prefix_caching", True),) * 2
