"""Every family through the whole engine against transformers: tokens and logits, with windows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.core.spec import Sliding
from octavo.core.table import NOTHING
from tests.engine.tiny import GREEDY, Desk, assert_same, prompt
from tests.families import FAMILIES, LONGROPE, tiny_family

WINDOWED = ["mistral", "qwen2_window", "phi3", "gemma2", "gemma3"]
LONG = replace(GREEDY, max_tokens=64)
OPTIONS: dict[str, dict[str, Any]] = {
    "cached": {},
    "uncached": {"enable_prefix_caching": False},
    "chunked": {"max_num_batched_tokens": 21, "max_num_seqs": 4},
    "chunked_uncached": {
        "max_num_batched_tokens": 16,
        "max_num_seqs": 4,
        "enable_prefix_caching": False,
    },
    "reserved": {"allocator": "max_length", "num_blocks": 1024},
    "small_blocks": {"block_size": 5, "num_blocks": 1024},
}
Answer = tuple[list[int], torch.Tensor]


class Reference:
    """One family's checkpoint, and what transformers makes of tokens."""

    def __init__(self, folder: Path, family: str, **overrides: Any) -> None:
        self.folder = folder
        self.model = tiny_family(folder, family, **overrides)

    def check(self, tokens: Sequence[int], answer: Answer) -> None:
        """`answer` is greedy: each token is the best of transformers' logits there."""
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*tokens, *answer[0][:-1]]])).logits[0]
        logits = logits[len(tokens) - 1 :]
        assert_same(answer, (logits.argmax(-1).tolist(), logits))


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reference]:
    return {name: Reference(tmp_path_factory.mktemp(name), name) for name in FAMILIES}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_transformers(
    references: dict[str, Reference], family: str, options: str
) -> None:
    reference = references[family]
    desk = Desk(reference.folder, **{"num_blocks": 512, **OPTIONS[options]})
    prompts = [prompt(length, seed=length) for length in (67, 3, 131)]
    for _ in ("cold", "warm"):
        for tokens, answer in zip(prompts, desk.answer(*prompts, params=LONG), strict=True):
            assert len(answer[0]) == 64
            reference.check(tokens, answer)


@pytest.mark.parametrize("family", WINDOWED)
def test_a_hit_after_the_window_moved_takes_only_what_it_reads(
    references: dict[str, Reference], family: str
) -> None:
    reference = references[family]
    desk = Desk(reference.folder, num_blocks=512)
    tokens = prompt(100, seed=1)
    answer = desk.answer(tokens, params=LONG)[0]
    longer = [*tokens, *answer[0], *prompt(30, seed=2)]
    session = desk.submit(longer, LONG)
    desk.engine.step()
    (request,) = session.requests
    assert request.table is not None
    for group, blocks in zip(desk.engine.cache.spec.groups, request.table.groups, strict=True):
        windowed = isinstance(group.kind, Sliding)
        assert (blocks[0] == NOTHING) == windowed
        assert NOTHING not in blocks[-2:]
    desk.run()
    assert session.receipt.read == 163 // 16 * 16
    reference.check(longer, desk.result(session))


@pytest.mark.parametrize("family", WINDOWED)
def test_blocks_that_left_the_window_serve_the_same_sequence_again(
    references: dict[str, Reference], family: str
) -> None:
    """A pool far smaller than all positions of all groups: what was left has been overwritten."""
    reference = references[family]
    chunks = {"max_num_batched_tokens": 16, "max_num_seqs": 2}
    roomy = Desk(reference.folder, **chunks)
    spec = roomy.engine.cache.spec
    tokens = prompt(300, seed=4)
    needed = spec.blocks_at_peak(364, 16)
    assert needed < len(spec.groups) * spec.blocks(364)
    for cached in (True, False):
        desk = Desk(reference.folder, num_blocks=needed, enable_prefix_caching=cached, **chunks)
        reference.check(tokens, desk.answer(tokens, params=LONG)[0])
        assert desk.engine.stats().preemptions == 0


@pytest.mark.parametrize("family", WINDOWED)
def test_shared_prefixes_under_eviction_change_nothing(
    references: dict[str, Reference], family: str
) -> None:
    reference = references[family]
    rng = random.Random(family)
    stem = prompt(90, seed=5)
    chunks = {"max_num_batched_tokens": 48, "max_num_seqs": 6}
    spec = Desk(reference.folder, **chunks).engine.cache.spec
    desk = Desk(reference.folder, num_blocks=spec.blocks_at_peak(140, 48) + 3, **chunks)
    params = replace(GREEDY, max_tokens=30)
    for _ in range(3):
        prompts = [
            [*stem[: rng.randrange(90)], *prompt(rng.randint(1, 20), seed=rng.randrange(9))]
            for _ in range(7)
        ]
        for tokens, answer in zip(prompts, desk.answer(*prompts, params=params), strict=True):
            reference.check(tokens, answer)
    assert desk.engine.stats().prefix_hit_tokens > 0


@pytest.mark.parametrize("family", ["qwen2_window", "gemma2", "gemma3"])
def test_preemption_changes_no_answer(references: dict[str, Reference], family: str) -> None:
    reference = references[family]
    prompts = [prompt(30, seed=seed) for seed in range(6)]
    n_groups = len(Desk(reference.folder).engine.cache.spec.groups)
    desk = Desk(reference.folder, num_blocks=14 * n_groups)
    answers = desk.answer(*prompts, params=replace(GREEDY, max_tokens=40))
    assert desk.engine.stats().preemptions > 0
    for tokens, answer in zip(prompts, answers, strict=True):
        reference.check(tokens, answer)


@pytest.mark.parametrize("family", WINDOWED)
def test_choices_fork_inside_a_window(references: dict[str, Reference], family: str) -> None:
    reference = references[family]
    desk = Desk(reference.folder, num_blocks=512)
    tokens = prompt(75, seed=6)
    session = desk.submit(tokens, replace(LONG, n=3))
    desk.run()
    for choice in range(3):
        reference.check(tokens, desk.result(session, choice))


@pytest.mark.parametrize(("max_model_len", "n_prompt"), [(64, 24), (512, 70)])
def test_longrope_is_that_of_transformers_within_either_list(
    tmp_path: Path, max_model_len: int, n_prompt: int
) -> None:
    """transformers chooses by each sequence, we by the longest: here both choose the same."""
    reference = Reference(tmp_path, "phi3", **LONGROPE)
    desk = Desk(tmp_path, max_model_len=max_model_len)
    tokens = prompt(n_prompt, seed=4)
    for _ in ("cold", "warm"):
        (answer,) = desk.answer(tokens, params=replace(GREEDY, max_tokens=40))
        reference.check(tokens, answer)


def test_the_lists_of_longrope_share_no_cache(tmp_path: Path) -> None:
    tiny_family(tmp_path, "phi3", **LONGROPE)
    short, shorter, long, longer = (
        Desk(tmp_path, max_model_len=length).engine._namespace for length in (64, 40, 65, 512)
    )
    assert short == shorter
    assert long == longer
    assert short != long
