"""The same request over HTTP and from Python: the same tokens, texts and ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.core.sampling import SamplingParams
from octavo.engine.chat_options import ChatOptions
from octavo.engine.llm import LLM
from octavo.engine.types import GenerateRequest, Output
from tests.engine.tiny import DEFAULTS
from tests.server.faults import CHAT, COMPLETIONS
from tests.server.live import MODEL, serving, talker

TEXT = "the quick brown fox"
TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the quick"}]
GREEDY = {"temperature": 0, "max_tokens": 12}
SAMPLED = {"temperature": 0.9, "seed": 7, "max_tokens": 12}


@dataclass
class Both:
    llm: LLM
    http: httpx.Client


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder: Path = tmp_path_factory.mktemp("parity")
    talker(folder, bos=True)
    with (
        serving(folder) as (_, url),
        httpx.Client(base_url=url, timeout=30) as http,
        LLM(str(folder), **DEFAULTS) as llm,
    ):
        yield Both(llm, http)


Told = tuple[list[int], str, str | None, str | int | None]


def of_output(output: Output) -> list[Told]:
    return [(one.token_ids, one.text, one.finish_reason, one.stop_reason) for one in output.outputs]


def of_answer(answer: dict[str, Any]) -> list[Told]:
    return [
        (
            one["token_ids"],
            one["text"] if "text" in one else one["message"]["content"],
            one["finish_reason"],
            one["stop_reason"],
        )
        for one in answer["choices"]
    ]


def of_events(raw: str, n: int) -> list[Told]:
    found: list[list[Any]] = [[[], "", None, None] for _ in range(n)]
    for line in raw.split("\n\n"):
        if not line or line.endswith("[DONE]"):
            continue
        for one in json.loads(line.removeprefix("data: "))["choices"]:
            told = found[one["index"]]
            told[0] += one.get("token_ids", [])
            told[1] += one["text"] if "text" in one else one["delta"].get("content", "")
            told[2] = one["finish_reason"] or told[2]
            told[3] = one.get("stop_reason", told[3])
    return [(ids, text, finish, stop) for ids, text, finish, stop in found]


def check(both: Both, path: str, body: dict[str, Any], output: Output) -> dict[str, Any]:
    """Whole and streamed, the server's answer is `output`. Returns the whole one."""
    body = {"model": MODEL, "return_token_ids": True, **body}
    answer = both.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert of_answer(found) == of_output(output)
    holder = found["choices"][0] if path == COMPLETIONS else found
    assert holder["prompt_token_ids"] == output.prompt_token_ids
    if "prompt_logprobs" not in body:
        streamed = both.http.post(path, json={**body, "stream": True})
        assert of_events(streamed.text, len(output.outputs)) == of_output(output)
    return found


@pytest.mark.parametrize(
    "fields",
    [
        GREEDY,
        SAMPLED,
        {**SAMPLED, "n": 3},
        {**SAMPLED, "top_k": 20, "top_p": 0.8, "min_p": 0.01},
        {**GREEDY, "presence_penalty": 1.5, "frequency_penalty": -0.5, "repetition_penalty": 1.3},
        {**SAMPLED, "bad_words": ["the", "a"], "allowed_token_ids": list(range(3, 300))},
        {**GREEDY, "ignore_eos": True, "max_tokens": 40},
        {**SAMPLED, "temperature": 2.0, "max_tokens": 60, "min_tokens": 30},
        {**SAMPLED, "temperature": 2.0, "max_tokens": 60, "stop": ["e", "o"]},
        {**SAMPLED, "max_tokens": 60, "stop": "e", "include_stop_str_in_output": True},
        {**SAMPLED, "temperature": 2.0, "max_tokens": 60, "stop_token_ids": list(range(60, 100))},
        {**SAMPLED, "temperature": 2.0, "ignore_eos": True, "skip_special_tokens": False},
        {"beam_width": 4, "n": 2, "max_tokens": 8},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_completions(both: Both, fields: dict[str, Any]) -> None:
    params = SamplingParams(**fields)
    for prompt in (TEXT, [5, 6, 7, 8]):
        given: Any = prompt if isinstance(prompt, str) else [prompt]
        (output,) = both.llm.generate(given, params)
        check(both, COMPLETIONS, {"prompt": prompt, **fields}, output)


def test_logit_bias(both: Both) -> None:
    bias = {9: 100.0, 10: -50.0}
    (output,) = both.llm.generate(TEXT, SamplingParams(**GREEDY, logit_bias=bias))
    body = {"prompt": TEXT, **GREEDY, "logit_bias": {str(key): bias[key] for key in bias}}
    check(both, COMPLETIONS, body, output)
    assert output.outputs[0].token_ids == [9] * 12


def test_special_tokens_show_when_asked_for(both: Both) -> None:
    params = SamplingParams(**GREEDY, allowed_token_ids=[0], ignore_eos=True)
    (output,) = both.llm.generate(TEXT, params)
    body = {"prompt": TEXT, **GREEDY, "allowed_token_ids": [0], "ignore_eos": True}
    assert check(both, COMPLETIONS, body, output)["choices"][0]["text"] == ""
    shown = both.http.post(
        COMPLETIONS, json={"model": MODEL, **body, "skip_special_tokens": False}
    ).json()
    assert shown["choices"][0]["text"] == "<|endoftext|>" * 12


def test_logprobs(both: Both) -> None:
    params = SamplingParams(**GREEDY, logprobs=2, prompt_logprobs=1)
    (output,) = both.llm.generate(TEXT, params)
    body = {"prompt": TEXT, **GREEDY, "logprobs": 2, "prompt_logprobs": 1}
    choice = check(both, COMPLETIONS, body, output)["choices"][0]
    expected = output.outputs[0].logprobs
    assert expected is not None
    chosen = [next(iter(position.values())).logprob for position in expected]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(chosen, abs=1e-6)
    assert output.prompt_logprobs is not None
    for told, kept in zip(choice["prompt_logprobs"][1:], output.prompt_logprobs[1:], strict=True):
        assert kept is not None
        assert {int(key) for key in told} == set(kept)


def test_several_prompts(both: Both) -> None:
    prompts = [TEXT, "hello", "world"]
    outputs = both.llm.generate(prompts, SamplingParams(**SAMPLED))
    body = {"model": MODEL, "return_token_ids": True, "prompt": prompts, **SAMPLED}
    answer = both.http.post(COMPLETIONS, json=body).json()
    assert of_answer(answer) == [told for output in outputs for told in of_output(output)]


@pytest.mark.parametrize("fields", [GREEDY, {**SAMPLED, "n": 2}, {**SAMPLED, "stop": ["e"]}])
def test_chat(both: Both, fields: dict[str, Any]) -> None:
    (output,) = both.llm.chat(TALK[:1], SamplingParams(**fields))
    check(both, CHAT, {"messages": TALK[:1], **fields}, output)


@pytest.mark.parametrize(
    "fields",
    [
        {"continue_final_message": True},
        {"add_generation_prompt": False},
        {"continue_final_message": True, "add_generation_prompt": False},
    ],
    ids=str,
)
def test_rendering(both: Both, fields: dict[str, Any]) -> None:
    (output,) = both.llm.chat(TALK, SamplingParams(**GREEDY), options=ChatOptions(**fields))
    check(both, CHAT, {"messages": TALK, **GREEDY, **fields}, output)


def test_truncation(both: Both) -> None:
    request = GenerateRequest(
        messages=TALK, params=SamplingParams(**GREEDY), truncate_prompt_tokens=5
    )
    chunks = list(both.llm.stream(request))
    body = {"model": MODEL, "messages": TALK, "return_token_ids": True, **GREEDY}
    answer = both.http.post(CHAT, json={**body, "truncate_prompt_tokens": 5}).json()
    whole = both.http.post(CHAT, json=body).json()
    assert answer["prompt_token_ids"] == whole["prompt_token_ids"][-5:]
    tokens = [token for chunk in chunks for token in chunk.token_ids]
    assert answer["choices"][0]["token_ids"] == tokens


def test_a_continued_message_begins_as_it_was_left(both: Both) -> None:
    """Its tokens are those of the conversation up to there, and no answer is opened."""
    body = {"messages": TALK, "return_token_strs": True}
    open_end = both.http.post("/tokenize", json={**body, "continue_final_message": True}).json()
    closed = both.http.post("/tokenize", json={**body, "add_generation_prompt": False}).json()
    n_common = open_end["count"]
    assert n_common < closed["count"]
    assert closed["tokens"][:n_common] == open_end["tokens"]
    assert "".join(open_end["token_strs"]).endswith("the quick")


def test_tokenize_is_what_a_generation_reads(both: Both) -> None:
    for body in ({"prompt": TEXT}, {"prompt": TEXT, "add_special_tokens": False}):
        tokens = both.http.post("/tokenize", json=body).json()["tokens"]
        asked = {"model": MODEL, "return_token_ids": True, "max_tokens": 1, **body}
        (choice,) = both.http.post(COMPLETIONS, json=asked).json()["choices"]
        assert tokens == choice["prompt_token_ids"]
        text = both.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
        assert text == ("" if "add_special_tokens" in body else "<|endoftext|>") + TEXT


def test_an_empty_cache_gives_the_same_answer(both: Both) -> None:
    prompt = TEXT * 8
    (output,) = both.llm.generate(prompt, SamplingParams(**GREEDY))
    for _ in range(2):
        answer = check(both, COMPLETIONS, {"prompt": prompt, **GREEDY}, output)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert both.http.post("/reset_prefix_cache").json()["freed_blocks"] > 0
    body = {"model": MODEL, "prompt": prompt, **GREEDY}
    cold = both.http.post(COMPLETIONS, json=body).json()
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert cold["choices"][0]["text"] == output.outputs[0].text
