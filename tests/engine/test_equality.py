"""One answer, whatever the cache, the batch, the chunks and the policies: tokens and logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.core.sampling import SamplingParams
from octavo.engine.types import GenerateRequest
from tests.checkpoints import tiny_llama
from tests.engine.tiny import GREEDY, Desk, assert_same, prompt

Answer = tuple[list[int], torch.Tensor]

PROMPTS = [prompt(length, seed=length) for length in (1, 15, 16, 17, 48, 53, 90, 131)]
SAMPLED = SamplingParams(temperature=0.9, seed=7, max_tokens=12, ignore_eos=True)
OPTIONS: list[dict[str, Any]] = [
    {"enable_prefix_caching": False},
    {"share_in_flight": False},
    {"max_num_batched_tokens": 64, "max_num_seqs": 8},
    {"max_num_batched_tokens": 37, "max_num_seqs": 4},
    {"max_num_batched_tokens": 512},
    {"allocator": "max_length"},
    {"allocator": "power_of_two"},
    {"static_batching": True, "max_num_seqs": 3},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 160},
    {"block_size": 1, "num_blocks": 4096},
    {"block_size": 8},
    {"num_blocks": 11, "max_num_batched_tokens": 64, "max_num_seqs": 8},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[Answer]:
    """Each prompt by itself, uncached, whole."""
    desk = Desk(folder, enable_prefix_caching=False)
    return [desk.answer(each)[0] for each in PROMPTS]


@pytest.fixture(scope="module")
def sampled_alone(folder: Path) -> list[Answer]:
    desk = Desk(folder, enable_prefix_caching=False)
    return [desk.answer(each, params=SAMPLED)[0] for each in PROMPTS]


def test_prompts_in_one_batch_answer_as_alone(folder: Path, alone: list[Answer]) -> None:
    for got, expected in zip(Desk(folder).answer(*PROMPTS), alone, strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_policy_and_size_gives_the_same_answers(
    folder: Path, alone: list[Answer], sampled_alone: list[Answer], options: dict[str, Any]
) -> None:
    desk = Desk(folder, **options)
    cold = desk.answer(*PROMPTS)
    warm = desk.answer(*PROMPTS)
    sampled = desk.answer(*PROMPTS, params=SAMPLED)
    for i, expected in enumerate(alone):
        assert_same(cold[i], expected)
        assert_same(warm[i], expected)
        assert_same(sampled[i], sampled_alone[i])


@pytest.mark.parametrize("n_tokens", [48, 53])
def test_a_warm_prompt_and_its_extension_answer_as_cold(folder: Path, n_tokens: int) -> None:
    tokens, more = prompt(n_tokens, seed=1), prompt(30, seed=2)
    first = Desk(folder, enable_prefix_caching=False)
    desk = Desk(folder)
    cold = first.answer(tokens)[0]
    assert_same(desk.answer(tokens)[0], cold)
    session = desk.submit(tokens)
    desk.run()
    assert_same(desk.result(session), cold)
    assert session.receipt.read == min(n_tokens - 1, n_tokens // 16 * 16)
    longer = [*tokens, *cold[0], *more]
    session = desk.submit(longer)
    desk.run()
    assert session.receipt.read == (n_tokens + len(cold[0]) - 1) // 16 * 16
    assert_same(desk.result(session), first.answer(longer)[0])


@pytest.mark.parametrize("block_size", [1, 3, 7, 8, 24])
def test_any_block_size_hits_and_answers_as_cold(
    folder: Path, alone: list[Answer], block_size: int
) -> None:
    desk = Desk(folder, block_size=block_size, num_blocks=512)
    tokens, expected = PROMPTS[-1], alone[-1]
    assert_same(desk.answer(tokens)[0], expected)
    session = desk.submit([*tokens, *expected[0]])
    desk.run()
    n_stored = len(tokens) + len(expected[0]) - 1
    assert session.receipt.read == n_stored // block_size * block_size
    longer = Desk(folder, enable_prefix_caching=False).answer([*tokens, *expected[0]])[0]
    assert_same(desk.result(session), longer)


@pytest.mark.parametrize("share_in_flight", [True, False])
def test_equal_prompts_that_enter_together_answer_as_alone(
    folder: Path, alone: list[Answer], share_in_flight: bool
) -> None:
    """Nobody reads a block that is registered and not yet computed, or computed by nobody."""
    desk = Desk(folder, share_in_flight=share_in_flight, max_num_batched_tokens=2048)
    for got in desk.answer(*[PROMPTS[-1]] * 5):
        assert_same(got, alone[-1])
    n_shared = len(PROMPTS[-1]) // 16 * 16
    computed = 5 * (len(PROMPTS[-1]) + len(alone[-1][0]) - 1)
    assert desk.engine.stats().computed_tokens == computed - 4 * n_shared * share_in_flight


def test_a_cached_prefix_beside_decodes_in_one_batch_answers_as_alone(folder: Path) -> None:
    shared = prompt(64, seed=1)
    extended = [*shared, *prompt(29, seed=2)]
    cold = Desk(folder, enable_prefix_caching=False)
    want_long = cold.answer(prompt(20, seed=3), params=replace(GREEDY, max_tokens=40))[0]
    desk = Desk(folder)
    desk.answer(shared)
    decoding = [desk.submit(prompt(20, seed=3), replace(GREEDY, max_tokens=40)) for _ in range(2)]
    for _ in range(5):
        desk.engine.step()
    late = desk.submit(extended)
    desk.run()
    assert late.receipt.read == 64
    assert_same(desk.result(late), cold.answer(extended)[0])
    for each in decoding:
        assert_same(desk.result(each), want_long)


def test_other_salts_share_nothing_cached_or_in_flight(folder: Path, alone: list[Answer]) -> None:
    desk = Desk(folder, max_num_batched_tokens=64, max_num_seqs=8)
    for wave in ("cold", "warm"):
        requests = [
            GenerateRequest(prompt_token_ids=PROMPTS[-1], params=GREEDY, salt=salt)
            for salt in (f"a {wave}", f"b {wave}", "")
        ]
        sessions = [
            desk.engine.submit(desk.engine.prepare(each), lambda chunk: None) for each in requests
        ]
        desk.run()
        receipts = [session.receipt for session in sessions]
        own = 128 if wave == "warm" else 0
        assert [each.read for each in receipts] == [0, 0, own]
        assert [each.shared_in_flight for each in receipts] == [0, 0, 0]
        for session in sessions:
            assert_same(desk.result(session), alone[-1])


def test_preemption_changes_no_answer(folder: Path) -> None:
    params = replace(GREEDY, max_tokens=40)
    seeded = replace(SAMPLED, max_tokens=40)
    prompts = [prompt(30, seed=seed) for seed in range(6)]
    roomy = Desk(folder, enable_prefix_caching=False)
    expected = [roomy.answer(each, params=params)[0] for each in prompts]
    expected_seeded = [roomy.answer(each, params=seeded)[0] for each in prompts]
    desk = Desk(folder, num_blocks=14)
    for got, want in zip(desk.answer(*prompts, params=params), expected, strict=True):
        assert_same(got, want)
    greedy_preemptions = desk.engine.stats().preemptions
    assert greedy_preemptions > 0
    for got, want in zip(desk.answer(*prompts, params=seeded), expected_seeded, strict=True):
        assert_same(got, want)
    assert desk.engine.stats().preemptions > greedy_preemptions


def test_preemption_without_a_cache_changes_no_answer(folder: Path) -> None:
    params = replace(GREEDY, max_tokens=40)
    prompts = [prompt(30, seed=seed) for seed in range(6)]
    roomy = Desk(folder, enable_prefix_caching=False)
    desk = Desk(folder, num_blocks=14, enable_prefix_caching=False, max_num_batched_tokens=64,
                max_num_seqs=8)  # fmt: skip
    answers = desk.answer(*prompts, params=params)
    assert desk.engine.stats().preemptions > 0
    for tokens, got in zip(prompts, answers, strict=True):
        assert_same(got, roomy.answer(tokens, params=params)[0])


@pytest.mark.parametrize("n_tokens", [1, 16, 41])
@pytest.mark.parametrize("cached", [True, False])
def test_greedy_choices_all_equal_the_single_request(
    folder: Path, alone: list[Answer], n_tokens: int, cached: bool
) -> None:
    desk = Desk(folder, enable_prefix_caching=cached)
    tokens = prompt(n_tokens, seed=n_tokens)
    single = desk.answer(tokens)[0]
    session = desk.submit(tokens, replace(GREEDY, n=4))
    desk.run()
    for choice in range(4):
        assert_same(desk.result(session, choice), single)


def test_more_choices_than_seats_run_in_waves(folder: Path) -> None:
    desk = Desk(folder, max_num_seqs=3)
    tokens = prompt(41, seed=3)
    session = desk.submit(tokens, replace(SAMPLED, n=8))
    desk.run()
    roomy = Desk(folder, enable_prefix_caching=False)
    other = roomy.submit(tokens, replace(SAMPLED, n=8))
    roomy.run()
    for choice in range(8):
        assert_same(desk.result(session, choice), roomy.result(other, choice))


def test_seeded_choices_repeat_and_differ_from_each_other(folder: Path) -> None:
    desk = Desk(folder)
    tokens = prompt(41, seed=3)
    runs = []
    for crowd in (0, 5):
        session = desk.submit(tokens, replace(SAMPLED, n=4))
        for seed in range(crowd):
            desk.submit(prompt(33, seed=seed), SamplingParams(max_tokens=20))
        desk.run()
        runs.append([desk.result(session, choice)[0] for choice in range(4)])
    assert runs[0] == runs[1]
    assert len(set(map(tuple, runs[0]))) == 4
    assert runs[0][0] == desk.answer(tokens, params=SAMPLED)[0][0]


def test_a_seed_gives_the_same_tokens_among_unseeded_neighbours(
    folder: Path, sampled_alone: list[Answer]
) -> None:
    desk = Desk(folder)
    neighbours = [
        SamplingParams(max_tokens=20),
        SamplingParams(temperature=1.3, top_k=5, max_tokens=20),
        SamplingParams(temperature=0.7, top_p=0.8, max_tokens=20),
        SamplingParams(min_p=0.1, max_tokens=20),
    ]
    sessions = []
    for i, tokens in enumerate(PROMPTS):
        desk.submit(prompt(20 + i, seed=100 + i), neighbours[i % 4])
        sessions.append(desk.submit(tokens, SAMPLED))
    desk.run()
    for session, expected in zip(sessions, sampled_alone, strict=True):
        assert_same(desk.result(session), expected)


def test_unseeded_requests_draw_seeds_of_their_own(folder: Path) -> None:
    desk = Desk(folder)
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    answers = desk.answer(*[prompt(20)] * 3, params=params)
    assert len({tuple(tokens) for tokens, _ in answers}) == 3


def test_greedy_tokens_equal_those_of_transformers(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path, tie=False, seed=5)
    tokens = prompt(37, seed=9)
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([tokens]), max_new_tokens=64, min_new_tokens=64, do_sample=False,
            use_cache=True, return_dict_in_generate=True, output_logits=True, pad_token_id=2,
            attention_mask=torch.ones(1, len(tokens)),
        )  # fmt: skip
        logits = model(out.sequences).logits[0, len(tokens) - 1 : -1]
    expected = out.sequences[0, len(tokens) :].tolist()
    for options in ({}, {"max_num_batched_tokens": 16, "max_num_seqs": 2}):
        got = Desk(tmp_path, **options).answer(tokens, params=replace(GREEDY, max_tokens=64))[0]
        assert_same(got, (expected, logits))


def test_clearing_the_cache_under_a_running_request_keeps_the_index_whole(folder: Path) -> None:
    shared = prompt(32, seed=1)
    expected = Desk(folder).answer(shared, params=replace(GREEDY, max_tokens=40))[0]
    desk = Desk(folder, num_blocks=12)
    first = desk.submit(shared, replace(GREEDY, max_tokens=40))
    desk.engine.step()
    desk.engine.clear_cache()
    # Publishes the same prefix again and leaves before the first one, whose own copy has no key.
    desk.submit([*shared, *prompt(5, seed=2)], replace(GREEDY, max_tokens=1))
    desk.run()
    assert_same(desk.result(first), expected)
    # As many new blocks as there are: whatever is cached goes, in its order.
    desk.answer(prompt(150, seed=3))
    assert_same(desk.answer(shared, params=replace(GREEDY, max_tokens=40))[0], expected)
