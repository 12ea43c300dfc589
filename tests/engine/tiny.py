"""Tiny engines for tests: a random model of the tests' own, alone or with a small tokenizer."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from octavo.core.batch import Row
from octavo.core.config import EngineConfig
from octavo.core.sampling import SamplingParams
from octavo.engine.build import Built, build
from octavo.engine.engine import Engine
from octavo.engine.session import Session
from octavo.engine.types import Chunk, GenerateRequest
from tests.checkpoints import tiny_llama

VOCAB = 256
DEFAULTS: dict[str, Any] = {
    "dtype": "float32",
    "threads": 1,
    "num_blocks": 256,
    "keep_quantized": False,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def built(folder: Path, **options: Any) -> Built:
    """An engine that keeps to one thread and to float32."""
    return build(EngineConfig.of(str(folder), **{**DEFAULTS, **options}))


def prompt(n_tokens: int, *, seed: int = 0) -> list[int]:
    """Random ids, none of them special."""
    source = random.Random(seed)
    return [source.randrange(3, VOCAB) for _ in range(n_tokens)]


class Desk:
    """An engine stepped by hand, which keeps the logits that each token was chosen from."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._logits: dict[tuple[str, int], torch.Tensor] = {}
        options = {**DEFAULTS, "skip_tokenizer_init": True, **options}
        config = EngineConfig.of(str(folder), **options)
        self.engine: Engine = build(config, observer=self._observe).engine

    def _observe(self, rows: Sequence[Row], logits: torch.Tensor) -> None:
        for row, row_logits in zip(rows, logits, strict=True):
            self._logits[row.request.id, row.end] = row_logits.clone()

    def submit(self, tokens: Sequence[int], params: SamplingParams = GREEDY) -> Session:
        request = GenerateRequest(prompt_token_ids=list(tokens), params=params)
        return self.engine.submit(self.engine.prepare(request), _nowhere)

    def run(self) -> None:
        """Step until nothing is left, with every invariant checked after each step."""
        while self.engine.busy:
            self.engine.step()
            self.engine.scheduler.check()
        assert_empty(self.engine)

    def answer(
        self, *prompts: Sequence[int], params: SamplingParams = GREEDY
    ) -> list[tuple[list[int], torch.Tensor]]:
        """Tokens and logits float32 [tokens, vocab] of prompts that enter together."""
        sessions = [self.submit(each, params) for each in prompts]
        self.run()
        return [self.result(session) for session in sessions]

    def result(self, session: Session, choice: int = 0) -> tuple[list[int], torch.Tensor]:
        request = session.requests[choice]
        positions = range(request.n_prompt, len(request.tokens))
        logits = [self._logits[request.id, position] for position in positions]
        return request.tokens[request.n_prompt :], torch.stack(logits)


def _nowhere(chunk: Chunk) -> None:
    del chunk


def assert_empty(engine: Engine) -> None:
    """Nothing runs, waits, is held or claimed, and the whole queue is free again."""
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.held_blocks) == (0, 0, 0)
    assert not len(engine.cache.claims)
    assert not engine.sessions()
    assert engine.room == engine.max_live
    engine.scheduler.check()


def assert_same(
    got: tuple[list[int], torch.Tensor], expected: tuple[list[int], torch.Tensor]
) -> None:
    """Equal tokens from equal logits. Float32 on plain torch: 1e-3 is far above its rounding."""
    assert got[0] == expected[0]
    torch.testing.assert_close(got[1], expected[1], atol=1e-3, rtol=0)


def talking(folder: Path, tokenizer_folder: Path, *, vocab_size: int = 420) -> Path:
    """A tiny model with the tokenizer of another folder: its answers are noise, but text."""
    tiny_llama(folder, vocab_size=vocab_size)
    for file in tokenizer_folder.iterdir():
        shutil.copy(file, folder / file.name)
    return folder
