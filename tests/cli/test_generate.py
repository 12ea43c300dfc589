"""`octavo generate` over a fake engine."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable

import pytest

from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.types import Chunk
from tests.cli.conftest import FakeLocal, Result

Run = Callable[..., Result]


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_text_goes_to_standard_output(octavo: Run, engine: FakeLocal) -> None:
    done = octavo("generate", "Once")
    assert (done.code, done.out, done.err) == (0, "Hello\n", "")
    (request,) = engine.requests
    assert (request.prompt, request.messages) == ("Once", None)
    assert engine.closed


def test_sampling_flags(octavo: Run, engine: FakeLocal) -> None:
    octavo(
        *("generate", "hi", "--temperature", "0", "--top-p", "0.5", "--top-k", "3"),
        *("--min-p", "0.1", "--seed", "7", "--stop", "a", "--stop", "b", "--max-tokens", "9"),
    )
    params = engine.requests[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0, 0.5, 3, 0.1)
    assert (params.seed, params.stop, params.max_tokens) == (7, ("a", "b"), 9)


def test_flags_that_are_not_given_are_the_models_else_ours(octavo: Run, engine: FakeLocal) -> None:
    octavo("generate", "hi")
    engine.info.defaults = GenerationDefaults(temperature=0.6, top_k=9)
    octavo("generate", "hi", "--top-p", "0.5")
    ours, models = (request.params for request in engine.requests)
    assert ours == SamplingParams(temperature=0.2, max_tokens=1024)
    assert models == SamplingParams(temperature=0.6, top_k=9, top_p=0.5, max_tokens=1024)


def test_a_search_takes_none_of_our_defaults_but_the_length(octavo: Run, engine: FakeLocal) -> None:
    engine.info.defaults = GenerationDefaults(top_k=9)
    octavo("generate", "hi", "--beam-width", "4")
    assert engine.requests[0].params == SamplingParams(beam_width=4, max_tokens=1024)


def test_chat_template(octavo: Run, engine: FakeLocal) -> None:
    octavo("generate", "hi", "--chat")
    (request,) = engine.requests
    assert (request.prompt, request.messages) == (None, [{"role": "user", "content": "hi"}])


def test_prompt_from_standard_input(
    octavo: Run, engine: FakeLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    octavo("generate", "-")
    assert engine.requests[0].prompt == "from a pipe"


def test_json(octavo: Run, engine: FakeLocal) -> None:
    done = octavo("generate", "hi", "--json")
    found = json.loads(done.out)
    assert (found["model"], found["text"], found["finish_reason"]) == (
        "fake-model",
        "Hello",
        "stop",
    )
    assert found["token_ids"] == [1, 2, 3]
    assert found["usage"] == {
        "prompt_tokens": 40,
        "completion_tokens": 3,
        "cached_tokens": 32,
        "cache_write_tokens": 5,
    }
    assert found["receipt"]["read"] == 32
    assert (found["receipt"]["written_implicit"], found["receipt"]["written"]) == (5, 5)
    assert not [name for name in found["receipt"] if name.startswith("_")]
    assert 0 <= found["ttft_seconds"] <= found["seconds"]
    assert found["tokens_per_second"] > 0


def test_json_of_an_interrupted_answer_has_no_bill(octavo: Run, engine: FakeLocal) -> None:
    engine.steps = [Chunk(0, "Hel", (1,)), press_ctrl_c, Chunk(0, "lo", (2,))]
    found = json.loads(octavo("generate", "hi", "--json").out)
    assert (found["text"], found["token_ids"], found["interrupted"]) == ("Hello", [1, 2], True)
    assert found["usage"] is found["receipt"] is None


def test_ctrl_c_ends_the_answer(octavo: Run, engine: FakeLocal) -> None:
    engine.steps = [Chunk(0, "Hel", (1,)), press_ctrl_c, Chunk(0, "lo", (2,)), Chunk(0, "x", (3,))]
    done = octavo("generate", "hi")
    assert (done.code, done.out) == (130, "Hello\n")
    assert engine.ended_early == 1
    assert engine.closed


def test_a_failing_request(octavo: Run, engine: FakeLocal) -> None:
    engine.steps = [Chunk(0, "", (), finish_reason="error", error="NaN in the logits")]
    done = octavo("generate", "hi")
    assert (done.code, done.err) == (1, "octavo: NaN in the logits\n")
