"""What is wrong with a request or an option is named, and the engine goes on as if nothing was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, GenerateRequest, SamplingParams
from octavo.core.errors import (
    CallerError,
    ConfigError,
    ModelFileError,
    ModelNotFound,
    NeverFits,
    PromptTooLong,
    RequestError,
    Unsupported,
)
from tests.checkpoints import tiny_llama
from tests.engine.tiny import DEFAULTS, GREEDY, assert_empty, prompt, talking

CONTEXT = 512
HUGE = 10**5000  # more digits than the interpreter agrees to print
GOOD = prompt(20)


class Opaque:
    """Its repr carries an address, which no message may show."""


def shown(value: object) -> str:
    try:
        return ascii(value)[:40].split(" object at ")[0]
    except ValueError:
        return "huge"


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(tmp_path_factory.mktemp("talking"), folders["byte_level"])


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), **DEFAULTS) as opened:
        yield opened


@pytest.fixture(scope="module")
def good(llm: LLM) -> list[int]:
    return llm.generate([GOOD], GREEDY)[0].outputs[0].token_ids


@pytest.fixture(scope="module")
def mute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder without a tokenizer."""
    folder = tmp_path_factory.mktemp("mute")
    tiny_llama(folder)
    return folder


@pytest.fixture(autouse=True)
def _still_works(llm: LLM, good: list[int]) -> Iterator[None]:
    yield
    assert_empty(llm._engine)
    assert llm.generate([GOOD], GREEDY)[0].outputs[0].token_ids == good


def refused(call: Callable[[], object], error: type[CallerError] = RequestError) -> CallerError:
    """The error of `call`, whose message is short, plain and free of object reprs."""
    with pytest.raises(error) as caught:
        call()
    message = caught.value.message
    assert 10 < len(message) < 400
    assert message.isprintable()
    assert "object at 0x" not in message
    return caught.value


PROMPTS: list[tuple[Any, str]] = [
    ("", "prompt"),
    ([[]], "prompt"),
    ({"prompt_token_ids": []}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({}, "prompt"),
    ({"prompt": "a", "prompt_token_ids": [5]}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": b"bytes"}, "prompt"),
    ({"prompt": "a", "colour": "red"}, "colour"),
    ({"prompt": "a", 7: "red"}, "7"),
    ({"prompt": "a", "messages": []}, "messages"),
    ({"prompt": "a", "priority": "high"}, "priority"),
    ({"prompt": "a", "priority": 5000}, "priority"),
    ({"prompt": "a", "cache_salt": 5}, "cache_salt"),
    ({"prompt": "a", "cache_salt": "x" * 513}, "cache_salt"),
    ({"prompt": "a", "cache_salt": "\udc80"}, "cache_salt"),
    ("half a pair \ud83d", "prompt"),
    ({"prompt_token_ids": 5}, "prompt_token_ids"),
    ({"prompt_token_ids": "abc"}, "prompt_token_ids"),
    ({"prompt_token_ids": b"abc"}, "prompt_token_ids"),
    ({"prompt_token_ids": {"a": 1}}, "prompt_token_ids"),
    ([[420]], "prompt_token_ids"),
    ([[-1]], "prompt_token_ids"),
    ([[5, HUGE]], "prompt_token_ids"),
    ([[5, 6.0]], "prompt_token_ids"),
    ([[5, "6"]], "prompt_token_ids"),
    ([[5, None]], "prompt_token_ids"),
    ([[5, True]], "prompt_token_ids"),
    ([[5, Opaque()]], "prompt_token_ids"),
    ([5, 6, 7], "prompt"),
    ([None], "prompt"),
    ([b"abc"], "prompt"),
    (b"abc", "prompt"),
    (None, "prompt"),
    (5, "prompt"),
    (Opaque(), "prompt"),
]


@pytest.mark.parametrize(("prompts", "param"), PROMPTS, ids=shown)
def test_a_bad_prompt_is_refused_by_name(llm: LLM, prompts: Any, param: str) -> None:
    assert refused(lambda: llm.generate(prompts, GREEDY)).param == param


@pytest.mark.parametrize("n_tokens", [CONTEXT, CONTEXT + 1, 100_000])
def test_a_prompt_longer_than_the_context_is_refused(llm: LLM, n_tokens: int) -> None:
    error = refused(lambda: llm.generate([[5] * n_tokens], GREEDY), PromptTooLong)
    assert str(n_tokens) in error.message
    assert error.code == "context_length_exceeded"


def test_a_text_far_longer_than_the_context_is_refused_unread(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = llm._engine.tokenizer
    assert tokenizer is not None
    monkeypatch.setattr(tokenizer, "encode", lambda text: pytest.fail("it was tokenised"))
    refused(lambda: llm.generate("a" * 300_000, GREEDY), PromptTooLong)
    halves = [{"role": role, "content": "a" * 150_000} for role in ("user", "assistant")]
    error = refused(lambda: llm.chat(halves, GREEDY), PromptTooLong)
    assert error.param == "messages"


def test_a_prompt_larger_than_the_pool_is_refused_with_the_arithmetic(folder: Path) -> None:
    with LLM(str(folder), **{**DEFAULTS, "num_blocks": 4}) as llm:
        error = refused(lambda: llm.generate([prompt(65)], GREEDY), NeverFits)
        assert "needs 5 blocks" in error.message
        assert "num_blocks" in error.message
        assert_empty(llm._engine)
        assert len(llm.generate([prompt(64)], GREEDY)[0].outputs[0].token_ids) == 1


def test_an_unsplit_prompt_over_the_budget_is_refused(folder: Path) -> None:
    options = {"enable_chunked_prefill": False, "max_num_batched_tokens": 64, "max_num_seqs": 4}
    with LLM(str(folder), **{**DEFAULTS, **options}) as llm:
        error = refused(lambda: llm.generate([prompt(65)], GREEDY), NeverFits)
        assert "max_num_batched_tokens" in error.message
        assert_empty(llm._engine)


PARAMS: list[tuple[str, list[Any]]] = [
    ("temperature", [math.nan, math.inf, -math.inf, -0.1, 2.1, "1", None, True, HUGE, -HUGE, 1j]),
    ("top_p", [math.nan, 0, 0.0, -1, 1.1, "1", None, True, HUGE]),
    ("min_p", [math.nan, -0.1, 1.1, "1", None, False, HUGE]),
    ("top_k", [-2, 1.5, "5", None, True, HUGE, math.nan]),
    ("n", [0, -1, 129, 1.0, "2", None, True, HUGE]),
    ("max_tokens", [0, -1, 1.0, "2", True, HUGE, math.inf]),
    ("seed", [1.0, "2", True, HUGE, -HUGE, 1 << 63]),
    ("logprobs", [-1, 21, 1.0, "2", True, HUGE]),
    ("presence_penalty", [math.nan, -2.1, 2.1, "1", None, True, HUGE]),
    ("frequency_penalty", [math.inf, -2.1, 2.1, "1", None, False, -HUGE]),
    ("repetition_penalty", [math.nan, 0, -1.0, 1e-9, 101, "1", None, True, HUGE]),
    (
        "logit_bias",
        [
            5,
            [1],
            {420: 1},
            {-1: 1},
            {"5": 1},
            {5: "1"},
            {5: math.nan},
            {5: 100.1},
            {5: True},
            {True: 1},
            {HUGE: 1},
            {5: HUGE},
            dict.fromkeys(range(301), 1),
        ],
    ),
    ("allowed_token_ids", [[], 5, "ab", [420], [-1], ["5"], [5.0], [True], [HUGE], [5] * 421]),
    (
        "bad_words",
        [
            "word",
            5,
            None,
            [""],
            ["  "],
            [5],
            [None],
            [[]],
            [[420]],
            [["a"]],
            [b"a"],
            ["\ud800"],
            ["x" * 257],
            [[5] * 257],
            ["a"] * 257,
        ],
    ),
    ("min_tokens", [-1, 1.0, "2", None, True, HUGE, 13]),
    ("include_stop_str_in_output", [1, 0, "yes", None]),
    ("prompt_logprobs", [-1, 21, 1.0, "2", True, HUGE]),
    ("ignore_eos", [1, 0, "yes", None]),
    ("stop", [5, None, [""], [5], "", ["a"] * 17, "x" * 1025, [None], "\ud800", {"a": 1}, b"a"]),
    ("stop_token_ids", [5, None, [-1], [420], ["5"], [5.0], [True], [5] * 257, "ab", [HUGE]]),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in PARAMS for value in values],
    ids=shown,
)
def test_a_nonsense_parameter_is_refused_by_name(llm: LLM, name: str, value: Any) -> None:
    params = replace(GREEDY, **{name: value})
    assert refused(lambda: llm.generate([GOOD], params)).param == name


@pytest.mark.parametrize("params", [5, {"n": 1}, "greedy", [{"n": 1}], [None]], ids=str)
def test_what_is_no_sampling_params_is_refused(llm: LLM, params: Any) -> None:
    assert refused(lambda: llm.generate([GOOD], params)).param == "params"


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1e-320, max_tokens=3, seed=1),
        SamplingParams(temperature=2, top_p=1e-9, top_k=2**31, min_p=1, max_tokens=3),
        SamplingParams(top_k=-1, seed=-(2**63), max_tokens=2**31),
        SamplingParams(seed=2**63 - 1, logprobs=20, max_tokens=3, stop=["x" * 1024] * 16),
        SamplingParams(n=128, max_tokens=1, stop_token_ids=[419] * 256),
        SamplingParams(
            presence_penalty=2,
            frequency_penalty=-2,
            repetition_penalty=100,
            seed=1,
            max_tokens=9,
            min_tokens=9,
            prompt_logprobs=20,
        ),
        SamplingParams(
            repetition_penalty=0.01,
            logit_bias=dict.fromkeys(range(300), -100),
            seed=1,
            max_tokens=9,
            bad_words=["ab", "c" * 256, [5] * 256] + ["x"] * 253,
        ),
        SamplingParams(allowed_token_ids=[*range(420)], max_tokens=3, min_tokens=3, top_p=0.5),
    ],
    ids=str,
)
def test_parameters_at_their_bounds_work(llm: LLM, params: SamplingParams) -> None:
    out = llm.generate([GOOD], params)[0]
    assert len(out.outputs) == params.n
    assert all(choice.finish_reason in ("stop", "length") for choice in out.outputs)


@pytest.mark.parametrize(
    "messages",
    [[], [{}], [5], "text", {"role": "user"}, [{"role": "user", "content": "\ud800"}],
     [{"role": "nobody", "content": "a"}], [{"role": "user", "content": 5}]],
    ids=ascii,
)  # fmt: skip
def test_bad_messages_are_refused(llm: LLM, messages: Any) -> None:
    refused(lambda: llm.chat(messages, GREEDY))
    refused(lambda: list(llm.stream(GenerateRequest(messages=messages, params=GREEDY))))


def test_prompt_and_messages_together_are_refused(llm: LLM) -> None:
    request = GenerateRequest(prompt="a", messages=[{"role": "user", "content": "a"}])
    refused(lambda: next(llm.stream(request)))


def test_one_bad_prompt_keeps_all_from_running(llm: LLM) -> None:
    before = llm.stats().sequences
    refused(lambda: llm.generate([GOOD, GOOD, [-5]], GREEDY))
    assert llm.stats().sequences == before


def test_a_folder_without_tokenizer_says_what_to_set(mute: Path) -> None:
    error = refused(lambda: LLM(str(mute), **DEFAULTS), ConfigError)
    assert error.param == "skip_tokenizer_init"
    assert "skip_tokenizer_init" in error.message


def test_without_a_tokenizer_text_is_refused_and_ids_run(mute: Path) -> None:
    with LLM(str(mute), skip_tokenizer_init=True, **DEFAULTS) as llm:
        assert refused(lambda: llm.generate("text", GREEDY), Unsupported).param == "prompt"
        messages = [{"role": "user", "content": "hi"}]
        refused(lambda: llm.chat(messages, GREEDY), Unsupported)
        stop = replace(GREEDY, stop="x")
        assert refused(lambda: llm.generate([GOOD], stop), Unsupported).param == "stop"
        choice = llm.generate([GOOD], replace(GREEDY, stop_token_ids=[3]))[0].outputs[0]
        assert choice.text == ""
        assert choice.token_ids
        assert_empty(llm._engine)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    refused(lambda: LLM(str(tmp_path), **DEFAULTS), CallerError)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + b"\xff" * 64)
    refused(lambda: LLM(str(damaged), **DEFAULTS), ModelFileError)


@pytest.mark.parametrize("name", ["smollm3", "no-such-model", "", "/no/such/folder"])
def test_an_unknown_model_is_not_found(name: str) -> None:
    refused(lambda: LLM(name, **DEFAULTS), ModelNotFound)


OPTIONS: list[tuple[str, list[Any]]] = [
    ("device", ["banana", "", "meta", "cuda:99", "hpu", 5, None]),
    ("dtype", ["int8", "", 5]),
    ("kv_cache_dtype", ["fp8", 5]),
    ("attention_backend", ["flash", ""]),
    ("allocator", ["malloc"]),
    ("num_blocks", [0, -1, "5", 1.5, True, 10**9, 1 << 70, HUGE]),
    ("block_size", [0, -16, True, 1 << 40, HUGE]),
    ("kv_cache_memory_bytes", [0, 1, -1, HUGE]),
    ("max_model_len", [0, CONTEXT + 1, -1, HUGE]),
    ("max_num_seqs", [0, 4096, -1, HUGE]),
    ("max_num_batched_tokens", [0, -1, "9", HUGE]),
    ("max_num_queued_reqs", [0, -1, HUGE]),
    ("threads", [0, -1, 100_000, HUGE, "2"]),
    ("enable_prefix_caching", [1, "no", None]),
    ("num_block", [5]),
    ("gpu_memory_utilization", [0.9]),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in OPTIONS for value in values],
    ids=shown,
)
def test_a_nonsense_option_is_refused_by_name(mute: Path, name: str, value: Any) -> None:
    options = {**DEFAULTS, "skip_tokenizer_init": True, name: value}
    if name == "kv_cache_memory_bytes":
        del options["num_blocks"]
    error = refused(lambda: LLM(str(mute), **options), ConfigError)
    assert error.param == name
