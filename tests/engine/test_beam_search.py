"""Beam search from parameters to answers: those of `transformers`, whatever runs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from octavo.core.batch import Batch, StepResult
from octavo.core.beams import Hypothesis
from octavo.core.errors import Overloaded, RequestError, Unsupported
from octavo.core.request import Request
from octavo.core.sampling import SamplingParams
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.llm import LLM
from octavo.engine.session import Session
from octavo.engine.types import Chunk, Completion, GenerateRequest
from tests.checkpoints import tiny_llama
from tests.engine.tiny import DEFAULTS, built, prompt, talking

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

NEW_TOKENS = 10
LENGTHS = (1, 15, 16, 33, 50)
PROMPTS = [prompt(length, seed=length) for length in LENGTHS]
Found = list[tuple[list[int], float]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("tiny")
    model = tiny_llama(folder)
    model.generation_config.eos_token_id = None  # each search says where it stops
    return folder, model


@pytest.fixture(scope="module")
def folder(checkpoint: tuple[Path, LlamaForCausalLM]) -> Path:
    return checkpoint[0]


@pytest.fixture(scope="module")
def model(checkpoint: tuple[Path, LlamaForCausalLM]) -> LlamaForCausalLM:
    return checkpoint[1]


def llm(folder: Path, **options: Any) -> LLM:
    return LLM(str(folder), **{**DEFAULTS, "skip_tokenizer_init": True, **options})


def expected(
    model: LlamaForCausalLM, tokens: Sequence[int], params: SamplingParams
) -> list[tuple[list[int], float]]:
    """What `transformers` finds: (generated tokens, score) of the n best."""
    stop = list(params.stop_token_ids)
    assert params.beam_width is not None
    with torch.no_grad():
        found = model.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            num_beams=params.beam_width,
            num_return_sequences=params.n,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            max_new_tokens=params.max_tokens,
            do_sample=False,
            eos_token_id=stop or None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
    answers = []
    for row, score in zip(found.sequences, found.sequences_scores.tolist(), strict=True):
        answer = row[len(tokens) :].tolist()
        ends = [i for i, token in enumerate(answer) if token in stop]
        answers.append((answer[: ends[0] + 1] if ends else answer, score))
    return answers


def assert_equal(choices: Sequence[Completion], found: Found, params: SamplingParams) -> None:
    assert [choice.token_ids for choice in choices] == [tokens for tokens, _ in found]
    for choice, (tokens, score) in zip(choices, found, strict=True):
        assert choice.cumulative_logprob is not None
        ours = choice.cumulative_logprob / len(tokens) ** params.length_penalty
        assert ours == pytest.approx(score, abs=1e-4 * max(1, abs(score)))
        stopped = tokens[-1] in params.stop_token_ids
        assert choice.finish_reason == ("stop" if stopped else "length")


def beams(width: int, **options: Any) -> SamplingParams:
    options = {"n": width, "max_tokens": NEW_TOKENS, "ignore_eos": True, **options}
    return SamplingParams(beam_width=width, **options)


def stops_of(model: LlamaForCausalLM, tokens: Sequence[int], *, count: int) -> tuple[int, ...]:
    """Token ids that a search without stops has in the middle of its answers."""
    found = expected(model, tokens, beams(4))
    middle = [token for answer, _ in found for token in answer[2:7]]
    return tuple(sorted(set(middle), key=middle.index)[:count])


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -0.5])
def test_the_answers_are_those_of_transformers(
    folder: Path, model: LlamaForCausalLM, width: int, early_stopping: Any, length_penalty: float
) -> None:
    ended = set()
    with llm(folder) as ours:
        for i, tokens in enumerate(PROMPTS):
            params = beams(
                width,
                length_penalty=length_penalty,
                early_stopping=early_stopping,
                stop_token_ids=stops_of(model, tokens, count=i % 3),
            )
            (output,) = ours.generate([tokens], params)
            assert_equal(output.outputs, expected(model, tokens, params), params)
            ended |= {choice.finish_reason for choice in output.outputs}
    if length_penalty <= 0:  # others may find longer answers better than all that stopped
        assert ended == {"stop", "length"}


def test_width_64_and_its_best_answers_only(folder: Path, model: LlamaForCausalLM) -> None:
    params = beams(64, n=7, stop_token_ids=stops_of(model, PROMPTS[3], count=2))
    with llm(folder, max_num_seqs=64) as ours:
        (output,) = ours.generate([PROMPTS[3]], params)
    assert len(output.outputs) == 7
    assert_equal(output.outputs, expected(model, PROMPTS[3], params), params)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_prefix_caching": False},
        {"num_blocks": 8},
        {"num_blocks": 8, "enable_prefix_caching": False},
        {"max_num_seqs": 3},
        {"block_size": 1, "num_blocks": 4096},
        {"max_num_batched_tokens": 20, "max_num_seqs": 8},
        {"allocator": "max_length", "num_blocks": 20},
        {"static_batching": True, "max_num_seqs": 4},
    ],
    ids=str,
)
def test_beside_others_in_any_engine_the_answers_are_the_same(
    folder: Path, model: LlamaForCausalLM, options: dict[str, Any]
) -> None:
    stop = stops_of(model, PROMPTS[3], count=1)
    each = [
        beams(4, stop_token_ids=stop),
        SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True),
        beams(6, n=2, stop_token_ids=stop),
        SamplingParams(temperature=0.9, seed=5, max_tokens=14, ignore_eos=True, n=3),
        beams(2, early_stopping=True),
    ]
    with llm(folder) as alone:
        others = [alone.generate([PROMPTS[i]], each[i])[0].outputs for i in (1, 3)]
    with llm(folder, **options) as ours:
        for _ in range(2):  # cold, then warm
            outputs = ours.generate(PROMPTS, each)
            for i in (0, 2, 4):
                assert_equal(outputs[i].outputs, expected(model, PROMPTS[i], each[i]), each[i])
            got = [outputs[i].outputs for i in (1, 3)]
            assert [[c.token_ids for c in choices] for choices in got] == [
                [c.token_ids for c in choices] for choices in others
            ]
        assert ours.stats().held_blocks == 0


def test_answers_stream_in_order_once_they_are_final(folder: Path) -> None:
    with llm(folder) as ours:
        request = GenerateRequest(prompt_token_ids=PROMPTS[4], params=beams(4, n=3))
        chunks: list[Chunk] = list(ours.stream(request))
        assert [chunk.choice for chunk in chunks] == [0, 1, 2]
        scores = [chunk.cumulative_logprob for chunk in chunks]
        assert scores == sorted(scores, reverse=True)
        assert [chunk.usage is None for chunk in chunks] == [True, True, False]
        usage = chunks[-1].usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (50, 3 * NEW_TOKENS)


def test_the_receipt_shows_the_blocks_that_sharing_saves(folder: Path) -> None:
    with llm(folder) as ours:
        (output,) = ours.generate([prompt(160, seed=9)], beams(8, n=1, max_tokens=4))
    receipt = output.receipt
    assert receipt is not None
    assert receipt.beam_unshared_blocks == 8 * 11
    assert receipt.beam_blocks == 10 + 8
    assert receipt.read + receipt.written + receipt.unkept == 160


def test_closing_the_stream_leaves_nothing_behind(folder: Path) -> None:
    with llm(folder, num_blocks=12) as ours:
        stream = ours.stream(
            GenerateRequest(prompt_token_ids=PROMPTS[4], params=beams(8, max_tokens=100))
        )
        session = ours._engine.submit(
            ours._engine.prepare(
                GenerateRequest(prompt_token_ids=PROMPTS[3], params=beams(8, max_tokens=100))
            ),
            lambda chunk: None,
        )
        for _ in range(5):
            ours._engine.step()
        ours._abort([session])
        stream.close()
        stats = ours.stats()
        assert (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)
        assert ours._engine.room == ours._engine.max_live
        assert [choice.ended for choice in session._choices] == [True] * 8


def test_a_search_takes_a_place_in_the_queue_for_each_beam(folder: Path) -> None:
    with llm(folder, max_num_seqs=2, max_num_queued_reqs=4) as ours:
        engine = ours._engine
        prepared = engine.prepare(
            GenerateRequest(prompt_token_ids=PROMPTS[2], params=beams(4, n=1))
        )
        engine.submit(prepared, lambda chunk: None)
        assert (engine.max_live, engine.room) == (6, 2)
        with pytest.raises(Overloaded, match="4 of 6 places are taken and 4 are wanted"):
            engine.submit(prepared, lambda chunk: None)
        while engine.busy:
            engine.step()
        assert engine.room == 6
        with pytest.raises(RequestError, match="beam_width 7 is more than the 6") as caught:
            engine.reserve(beams(7, n=1))
        assert caught.value.param == "beam_width"
        with pytest.raises(RequestError, match="beam_width must be a whole number"):
            engine.reserve(SamplingParams(beam_width=10**9))
        assert len(ours.generate([PROMPTS[2]] * 3, beams(4, n=1))) == 3
        assert engine.room == 6


def test_a_broken_step_ends_every_answer_with_the_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with llm(folder) as ours:
        runner = ours._engine._loop._runner
        run, steps = runner.run, []

        def breaks(batch: Batch) -> StepResult:
            steps.append(batch.step)
            if len(steps) == 3:
                raise RuntimeError("a broken kernel")
            return run(batch)

        monkeypatch.setattr(runner, "run", breaks)
        (output,) = ours.generate([PROMPTS[2]], beams(4, n=3))
        assert [choice.finish_reason for choice in output.outputs] == ["error"] * 3
        assert all(choice.error for choice in output.outputs)
        (output,) = ours.generate([PROMPTS[2]], beams(4, n=3))
        assert [choice.finish_reason for choice in output.outputs] == ["length"] * 3


def test_an_answer_that_cannot_be_told_leaves_the_others_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Session.take_answer

    def fails(self: Session, request: Request, found: Hypothesis) -> None:
        if request.choice == 1:
            raise RuntimeError("no text")
        take(self, request, found)

    monkeypatch.setattr(Session, "take_answer", fails)
    with llm(folder) as ours:
        (output,) = ours.generate([PROMPTS[2]], beams(4, n=3))
        reasons = [choice.finish_reason for choice in output.outputs]
        assert reasons == ["length", "error", "length"]
        assert ours._engine.room == ours._engine.max_live


def test_asyncio_gets_the_same_answers_and_may_leave_early(folder: Path) -> None:
    request = GenerateRequest(prompt_token_ids=PROMPTS[3], params=beams(4, n=2))
    with llm(folder) as ours:
        expected_chunks = [(c.choice, c.token_ids) for c in ours.stream(request)]

    async def both() -> list[tuple[int, tuple[int, ...]]]:
        engine = AsyncEngine(built(folder, skip_tokenizer_init=True))
        try:
            left = await engine.submit(replace(request, params=beams(8, max_tokens=300)))
            stream = await engine.submit(request)
            found = [(chunk.choice, chunk.token_ids) async for chunk in stream]
            await left.cancel()
            async for chunk in left:
                assert chunk.finish_reason == "abort"
            assert engine.stats().held_blocks == 0
            return found
        finally:
            await engine.close()

    assert asyncio.run(both()) == expected_chunks


def test_answers_are_text_without_their_stop_token(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    with LLM(str(talking(tmp_path, folders["byte_level"])), **DEFAULTS) as ours:
        (free,) = ours.generate(["hello world"], beams(3, max_tokens=8))
        stop = free.outputs[0].token_ids[4]
        (output,) = ours.generate(["hello world"], beams(3, max_tokens=8, stop_token_ids=(stop,)))
        tokenizer = ours._engine.tokenizer
        assert tokenizer is not None
        assert any(choice.stop_reason == stop for choice in output.outputs)
        for choice in output.outputs:
            kept = [token for token in choice.token_ids if token != stop]
            assert choice.text == tokenizer.decode(kept)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"beam_width": 0}, "beam_width"),
    ({"beam_width": 65}, "beam_width"),
    ({"beam_width": True}, "beam_width"),
    ({"beam_width": 2.0}, "beam_width"),
    ({"n": 5}, "n"),
    ({"length_penalty": float("nan")}, "length_penalty"),
    ({"length_penalty": 11.0}, "length_penalty"),
    ({"length_penalty": "1"}, "length_penalty"),
    ({"early_stopping": "always"}, "early_stopping"),
    ({"early_stopping": 1}, "early_stopping"),
    ({"temperature": 0.7}, "temperature"),
    ({"top_k": 5}, "top_k"),
    ({"top_p": 0.9}, "top_p"),
    ({"min_p": 0.1}, "min_p"),
    ({"logprobs": 0}, "logprobs"),
    ({"stop": "x"}, "stop"),
    ({"beam_width": None, "length_penalty": 2.0}, "length_penalty"),
    ({"beam_width": None, "early_stopping": True}, "early_stopping"),
]


@pytest.mark.parametrize(("change", "param"), BAD, ids=str)
def test_what_does_not_go_together_is_refused_by_name(
    folder: Path, change: dict[str, Any], param: str
) -> None:
    with llm(folder) as ours, pytest.raises(RequestError) as raised:
        ours.generate([PROMPTS[0]], replace(beams(4), **change))
    assert raised.value.param == param


def test_what_is_known_and_not_served_says_so(folder: Path) -> None:
    with llm(folder) as ours, pytest.raises(Unsupported, match="top_k is not supported"):
        ours.generate([PROMPTS[0]], replace(beams(4), top_k=3))


def test_a_seed_and_temperature_0_ask_for_nothing_else(folder: Path) -> None:
    with llm(folder) as ours:
        plain, other = (
            ours.generate([PROMPTS[2]], params)[0].outputs
            for params in (beams(3), replace(beams(3), seed=3, temperature=0.0))
        )
    assert [c.token_ids for c in plain] == [c.token_ids for c in other]
