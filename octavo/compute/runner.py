"""Carries out one batch on the model: moves, one forward, one token per sampling row.

Owns the order of these. Reads requests and never writes them; keeps nothing of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from octavo.compute.attention import AttentionBackend
from octavo.compute.beam_candidates import with_candidates
from octavo.compute.decoder import Decoder
from octavo.compute.inputs import step_inputs
from octavo.compute.kv_pool import KVPool
from octavo.compute.sampler import Draw, sample
from octavo.core.batch import Batch, Row, RowResult, StepResult
from octavo.core.sampling import SamplingParams

Observer = Callable[[Sequence[Row], torch.Tensor], None]


class ModelRunner:
    """`core.batch.Runner` for one decoder, one pool and one backend bound to that pool.

    `observer` is called with the sampling rows and their logits float32 [rows, vocab], before
    tokens are chosen.
    """

    def __init__(
        self,
        decoder: Decoder,
        pool: KVPool,
        *,
        backend: AttentionBackend,
        observer: Observer | None = None,
    ) -> None:
        self._decoder = decoder
        self._pool = pool
        self._backend = backend
        self._observer = observer

    @torch.inference_mode()
    def run(self, batch: Batch) -> StepResult:
        """Moves first, then all rows together. A row that samples yields one token."""
        self._pool.move(batch.moves)
        if not batch.rows:
            return StepResult(())
        for row in batch.rows:
            _check(row)
        logits = self._forward(batch.rows)
        sampling = [row for row in batch.rows if row.samples]
        if not sampling:
            return StepResult([RowResult()] * len(batch.rows))
        if self._observer is not None:
            self._observer(sampling, logits)
        sampled = sample(logits, [_draw(row) for row in sampling])
        results = iter(with_candidates(sampling, logits, sampled))
        return StepResult([next(results) if row.samples else RowResult() for row in batch.rows])

    def _forward(self, rows: Sequence[Row]) -> torch.Tensor:
        """Logits of the rows that sample, float32 [rows, vocab]."""
        pool = self._pool
        inputs = step_inputs(rows, block_tokens=pool.block_tokens, device=pool.device)
        pool.wipe(inputs.begun_blocks)
        return self._decoder.forward(
            inputs.tokens,
            inputs.positions,
            backend=self._backend,
            plan=self._backend.plan(inputs.attention),
            logit_rows=inputs.logit_rows,
        )


def _check(row: Row) -> None:
    """What the scheduler does not plan yet and this runner does not do."""
    assert not row.drafts
    assert row.logits_from == (row.end - 1 if row.samples else row.end)


def _draw(row: Row) -> Draw:
    params = row.request.sampling
    assert isinstance(params, SamplingParams)
    return Draw(params, row.request.choice, row.end)
