"""Echo, prompt log-probabilities and sampling fields through the vendor's client and a real engine.

One tiny model with a small tokenizer behind a real server; its own log-softmax is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from transformers import LlamaForCausalLM

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.types import Chunk, TokenLogprob
from octavo.server.openai.echo import Echo, echoed
from octavo.server.streams import Part
from tests.server.live import MODEL, VOCAB, serving, talker

TEXT = "the quick 👍🏽 fox jumps over ½ the café"


@dataclass
class Live:
    client: openai.OpenAI
    engine: AsyncEngine
    model: LlamaForCausalLM

    def tokens(self, text: str = TEXT) -> list[int]:
        tokenizer = self.engine._engine.tokenizer
        assert tokenizer is not None
        return tokenizer.encode(text)

    def text(self, token: int) -> str:
        return self.engine.token_bytes(token).decode("utf-8", "replace")

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)

    def complete(self, **fields: Any) -> Any:
        known = {"model": MODEL, "prompt": TEXT, "max_tokens": 3, "temperature": 0}
        return self.client.completions.create(**{**known, **fields})


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bos"])
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("live")
    model = talker(folder, bos=request.param)
    # A small budget: a longer prompt takes several steps to score.
    with (
        serving(folder, max_num_batched_tokens=32, max_num_seqs=8) as (engine, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as client,
    ):
        yield Live(client, engine, model)


def assert_echoed(live: Live, choice: Any, *, text: str, tokens: list[int], count: int) -> None:
    """Legacy log-probabilities over prompt and answer, each as the model has it."""
    found = choice.logprobs
    n_prompt, total = len(tokens), len(tokens) + 3
    assert choice.text.startswith(text)
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == total
    assert found.token_logprobs[0] is None
    assert found.top_logprobs[0] is None
    logprobs = live.logprobs(tokens)
    for place in range(1, n_prompt):
        wanted = logprobs[place - 1]
        assert found.token_logprobs[place] == pytest.approx(float(wanted[tokens[place]]), abs=1e-3)
        # Tokens that share a text share a place: the taken one's, else the likeliest one's.
        best = [*wanted.topk(count).indices.tolist()[::-1], tokens[place]]
        expected = {live.text(token): float(wanted[token]) for token in best}
        assert found.top_logprobs[place] == pytest.approx(expected, abs=1e-3)
    assert all(value is not None for value in found.token_logprobs[1:])
    assert found.text_offset == sorted(found.text_offset)
    assert found.text_offset[0] == 0
    assert found.text_offset[n_prompt] == len(text)
    # Where a token is whole characters, it stands where its offset says.
    for token, offset in zip(found.tokens[:n_prompt], found.text_offset, strict=False):
        if token.isascii() and not token.startswith("<|"):
            assert choice.text.startswith(token, offset)


def test_echo_with_logprobs_cold_and_warm(live: Live) -> None:
    tokens = live.tokens()
    for _ in range(2):
        answer = live.complete(echo=True, logprobs=4)
        assert_echoed(live, answer.choices[0], text=TEXT, tokens=tokens, count=4)
        assert answer.usage.prompt_tokens == len(tokens)
        assert answer.usage.completion_tokens == 3
    plain = live.complete(logprobs=4).choices[0]
    echoed = answer.choices[0]
    assert echoed.text == TEXT + plain.text
    assert echoed.logprobs.tokens[len(tokens) :] == plain.logprobs.tokens
    assert echoed.logprobs.token_logprobs[len(tokens) :] == pytest.approx(
        plain.logprobs.token_logprobs, abs=1e-4
    )


def test_echo_alone_repeats_the_prompt(live: Live) -> None:
    plain = live.complete().choices[0].text
    answer = live.complete(echo=True).choices[0]
    assert (answer.text, answer.logprobs) == (TEXT + plain, None)
    assert live.complete(echo=False).choices[0].text == plain
    ids = live.tokens("hello world")[-3:]
    spelt = b"".join(map(live.engine.token_bytes, ids)).decode()
    assert live.complete(prompt=ids, echo=True).choices[0].text.startswith(spelt)


@pytest.mark.parametrize("stream", [False, True])
def test_echo_of_several_prompts_and_choices(live: Live, stream: bool) -> None:
    texts = ["the cat sat on the mat", "hello world " * 20]
    for _ in range(2):
        answer = live.complete(
            prompt=texts, n=2, echo=True, logprobs=2, stream=stream, temperature=1, seed=1,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        choices = joined(answer) if stream else answer.choices
        assert [choice.index for choice in choices] == [0, 1, 2, 3]
        for choice in choices:
            text = texts[choice.index // 2]
            assert_echoed(live, choice, text=text, tokens=live.tokens(text), count=2)


def test_a_choice_that_is_early_waits_for_the_scores_of_its_prompt() -> None:
    scored = (None, {8: TokenLogprob(-1.0, 1), 9: TokenLogprob(-3.0, 3)})

    async def parts() -> AsyncGenerator[Part, None]:
        yield Part(0, Chunk(1, "b", (1,), logprobs=({1: TokenLogprob(-2.0, 1)},)))
        yield Part(1, Chunk(0, "z", (1,), prompt_logprobs=(None,)))
        yield Part(0, Chunk(1, "c", (2,)))
        yield Part(0, Chunk(0, "a", (3,), prompt_logprobs=scored))
        yield Part(0, Chunk(0, "d", (4,)))

    async def story() -> list[tuple[int, int, str, int]]:
        echoes = [Echo("P", [7, 8]), Echo("Q", [7])]
        return [
            (part.prompt, part.chunk.choice, part.chunk.text, len(part.chunk.logprobs or ()))
            async for part in echoed(parts(), echoes, top_logprobs=1)
        ]

    assert asyncio.run(story()) == [
        (1, 0, "Qz", 1),
        (0, 0, "Pa", 2),
        (0, 1, "Pb", 3),
        (0, 1, "c", 0),
        (0, 0, "d", 0),
    ]


class Joined:
    """A streamed choice, put together."""

    def __init__(self, index: int) -> None:
        self.index, self.text, self.logprobs = index, "", self
        self.tokens: list[str] = []
        self.token_logprobs: list[float | None] = []
        self.top_logprobs: list[dict[str, float] | None] = []
        self.text_offset: list[int] = []

    def add(self, event: Any) -> None:
        self.text += event.text
        if event.logprobs is not None:
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                getattr(self, name).extend(getattr(event.logprobs, name))


def joined(stream: Any) -> list[Joined]:
    found: dict[int, Joined] = {}
    for event in stream:
        for choice in event.choices:
            found.setdefault(choice.index, Joined(choice.index)).add(choice)
    return [found[index] for index in sorted(found)]


def test_prompt_logprobs_of_completions_are_in_each_choice(live: Live) -> None:
    tokens = live.tokens()
    logprobs = live.logprobs(tokens)
    answer = live.complete(n=2, extra_body={"prompt_logprobs": 2})
    for choice in answer.choices:
        assert choice.logprobs is None
        assert_prompt_logprobs(choice.model_extra["prompt_logprobs"], tokens, logprobs, count=2)
    both = live.complete(echo=True, logprobs=5, extra_body={"prompt_logprobs": 1}).choices[0]
    assert_prompt_logprobs(both.model_extra["prompt_logprobs"], tokens, logprobs, count=1)
    assert_echoed(live, both, text=TEXT, tokens=tokens, count=5)


def test_prompt_logprobs_of_a_chat_are_beside_its_choices(live: Live) -> None:
    answer = live.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=2,
        extra_body={"prompt_logprobs": 1},
    )
    assert answer.usage is not None
    assert answer.model_extra is not None
    found = answer.model_extra["prompt_logprobs"]
    assert len(found) == answer.usage.prompt_tokens
    assert found[0] is None
    assert all({one["rank"] for one in each.values()} >= {1} for each in found[1:])


def assert_prompt_logprobs(
    found: Any, tokens: list[int], logprobs: torch.Tensor, *, count: int
) -> None:
    assert found[0] is None
    for place, token in enumerate(tokens[1:]):
        entry, row = found[place + 1][str(token)], logprobs[place]
        assert entry["logprob"] == pytest.approx(float(row[token]), abs=1e-3)
        assert entry["rank"] == 1 + int((row > row[token]).sum())
        ranks = {each["rank"] for each in found[place + 1].values()}
        assert ranks == {*range(1, count + 1), entry["rank"]}


def test_sampling_fields_reach_the_model(live: Live) -> None:
    forced = live.complete(logit_bias={"77": 100}, presence_penalty=0.5, logprobs=0)
    assert forced.choices[0].logprobs.tokens == [live.text(77)] * 3
    allowed = live.complete(extra_body={"allowed_token_ids": [80]}).choices[0]
    assert allowed.text == live.text(80) * 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"999999": 5}}, "logit_bias"),
        ({"extra_body": {"allowed_token_ids": [VOCAB]}}, "allowed_token_ids"),
        ({"extra_body": {"min_tokens": 4}}, "min_tokens"),
        ({"extra_body": {"bad_words": ["  "]}}, "bad_words"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logprobs": 21}, "logprobs"),
    ],
    ids=str,
)
def test_what_only_the_engine_knows_is_refused_by_name(
    live: Live, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        live.complete(**fields)
    assert caught.value.param == param
    assert param in caught.value.message
