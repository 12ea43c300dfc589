"""What `build` refuses before it loads anything, and what it tells about an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.core.errors import ConfigError
from tests.checkpoints import tiny_llama
from tests.engine.tiny import Desk, built, prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


def never(*args: Any, **kwargs: Any) -> Any:
    pytest.fail("it came too far")


def test_float16_on_the_cpu_is_refused_before_the_model_is_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.engine.build.resolve", never)
    with pytest.raises(ConfigError, match="float16 is not supported on the CPU") as caught:
        built(folder, dtype="float16", skip_tokenizer_init=True)
    assert caught.value.param == "dtype"


def test_a_context_beyond_the_models_is_refused_before_the_weights_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.compute.load.load_decoder", never)
    with pytest.raises(ConfigError, match="513 exceeds the 512 positions") as caught:
        built(folder, max_model_len=513, skip_tokenizer_init=True)
    assert caught.value.param == "max_model_len"


def test_a_float16_cache_on_the_cpu_answers_as_float32_does(folder: Path) -> None:
    """K and V are rounded to 11 bits and computed with in float32."""
    ((tokens, logits),) = Desk(folder).answer(prompt(100))
    half = Desk(folder, kv_cache_dtype="float16")
    for _ in range(2):  # cold, then from the cache
        ((half_tokens, half_logits),) = half.answer(prompt(100))
        assert half_tokens == tokens
        torch.testing.assert_close(half_logits, logits, atol=0.02, rtol=0)


def test_the_info_tells_how_much_is_ever_let_in(folder: Path) -> None:
    parts = built(folder, max_num_seqs=3, max_num_queued_reqs=4, skip_tokenizer_init=True)
    assert parts.info.max_live_sequences == parts.engine.room == 7
