"""A model that reads a text: logits at every position, through the engine's own executors.

Owns block ids and steps of one sequence. Knows no scheduler, no cache keys and no sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from octavo.compute.attention import AttentionRows
from octavo.compute.inputs import StepInputs
from octavo.compute.weights import open_source
from octavo.core.config import EngineConfig, Machine, resolve_numerics
from octavo.engine.backend import choose

STEP_TOKENS = 512
TILE = 128  # positions whose logits exist at once
BLOCK_TOKENS = 16


class Reader:
    """One model file, numbers and K and V as `options` of EngineConfig say."""

    def __init__(self, path: Path, n_tokens: int, **options: Any) -> None:
        blocks = -(-n_tokens // BLOCK_TOKENS)
        config = EngineConfig.of(
            str(path),
            max_model_len=n_tokens,
            block_size=BLOCK_TOKENS,
            num_blocks=blocks,
            max_num_batched_tokens=STEP_TOKENS,
            **{"max_num_seqs": 4, "threads": 2, **options},
        )
        source = open_source(path)
        backend = choose(config, source)
        # The machine's part is settled by `options`: nothing here is sized by what is free.
        machine = Machine(native_bf16=False, available_bytes=1, threads=1)
        config = resolve_numerics(config, machine, native=backend.native)
        backend.load(config, source, progress=lambda *_: None)
        spec = source.config().kv_spec(config.cache.kv_cache_dtype, BLOCK_TOKENS)
        assert len(spec.groups) == 1, "a reading has one block table"
        self._executor = backend.executor(config, spec)
        self._table = np.arange(1, blocks + 1, dtype=np.int32).reshape(1, -1)
        torch.set_num_threads(config.model.threads or 1)

    @torch.inference_mode()
    def hidden(self, tokens: Sequence[int]) -> torch.Tensor:
        """The last hidden state at every position: float32 [tokens, hidden]."""
        parts = []
        for start in range(0, len(tokens), STEP_TOKENS):
            inputs = self._inputs(tokens, start, min(start + STEP_TOKENS, len(tokens)))
            self._executor.pool.wipe(inputs.begun_blocks)
            parts.append(self._executor.hidden(inputs, torch.arange(len(inputs.tokens))).float())
        return torch.cat(parts)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> Iterator[torch.Tensor]:
        """Of hidden states [positions, hidden], in tiles float32 [at most TILE, vocab]."""
        for tile in hidden.split(TILE):
            yield self._executor.logits(tile)

    def _inputs(self, tokens: Sequence[int], start: int, stop: int) -> StepInputs:
        positions = np.arange(start, stop, dtype=np.int64)
        blocks = -(-stop // BLOCK_TOKENS)
        rows = AttentionRows(
            np.array([0, stop - start], dtype=np.int32),
            np.array([stop], dtype=np.int32),
            self._table[:, :blocks].copy(),
            positions + BLOCK_TOKENS,  # the table counts up from block 1
        )
        return StepInputs(
            tokens=torch.tensor(tokens[start:stop], dtype=torch.int64),
            positions=torch.from_numpy(positions),
            logit_rows=torch.tensor([stop - start - 1]),
            attention=(rows,),
            begun_blocks=[blocks] if stop % BLOCK_TOKENS else [],
        )
