"""A whole compute stack over a tiny checkpoint, for tests."""

from __future__ import annotations

from pathlib import Path

import torch

from octavo.compute.attention import AttentionShape, select
from octavo.compute.decoder import Decoder
from octavo.compute.executor import TorchExecutor
from octavo.compute.kv_pool import KVPool
from octavo.compute.load import load_decoder
from octavo.compute.runner import ModelRunner
from octavo.compute.weights import open_source
from octavo.core.batch import Batch, Row, StepResult
from octavo.core.request import Request
from tests.compute.steps import Steps


class Rig:
    """Runner, pool and hand-made steps for one decoder. Every slot starts as NaN."""

    def __init__(self, decoder: Decoder, *, num_blocks: int = 64, block_tokens: int = 16) -> None:
        config = decoder.config
        dtype = str(decoder.dtype).removeprefix("torch.")
        spec = config.kv_spec(dtype, block_tokens)
        shape = AttentionShape(
            n_heads=config.n_heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            block_tokens=block_tokens,
            dtype=dtype,
            groups=spec.groups,
            scale=config.attention_scale,
            softcap=config.attention_softcap,
        )
        self.pool = KVPool(spec.widest, num_blocks, block_tokens=block_tokens)
        self.pool.tensor.fill_(torch.nan)
        self.backend = select("torch", shape).kind(self.pool, shape)
        executor = TorchExecutor(decoder, self.pool, backend=self.backend)
        self.runner = ModelRunner(executor, observer=self._observe)
        self.steps = Steps(num_blocks, block_tokens=block_tokens, groups=len(spec.groups))
        self.logits: dict[str, list[torch.Tensor]] = {}

    def _observe(self, rows: list[Row], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            self.logits.setdefault(row.request.id, []).append(own.clone())

    def run(self, rows: list[Row]) -> StepResult:
        """One step; requests advance as the scheduler would let them."""
        result = self.runner.run(self.steps.batch(rows))
        for row, each in zip(rows, result.rows, strict=True):
            row.request.computed = row.end
            row.request.tokens.extend(each.tokens)
        return result

    def finish(self, request: Request, n_tokens: int) -> list[int]:
        """Run `request` alone until it has `n_tokens` more; return those."""
        known = len(request.tokens)
        while len(request.tokens) < known + n_tokens:
            self.run([self.steps.row(request)])
        return request.tokens[known:]


def load_tiny(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return load_decoder(open_source(folder), dtype=dtype)


def batch_of(rows: list[Row]) -> Batch:
    return Batch(1, rows, [], [])
