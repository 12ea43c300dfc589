"""Carries out one batch on the model: moves, one forward, scores, one token per sampling row.

Owns the order of these. Reads requests and never writes them; keeps nothing of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from octavo.compute.beam_candidates import with_candidates
from octavo.compute.choice import Draw
from octavo.compute.executor import Executor
from octavo.compute.inputs import step_inputs
from octavo.compute.prompt_scores import flat_places, owed_spans, score_spans
from octavo.compute.sampler import BROKEN, sample
from octavo.compute.shaper import Shaper
from octavo.compute.verify import Pick, agreed, picks
from octavo.core.batch import Batch, Row, RowResult, StepResult
from octavo.core.sampling import SamplingParams, StepScores, TokenScores

Observer = Callable[[Sequence[Row], torch.Tensor], None]


class ModelRunner:
    """`core.batch.Runner` for one model and its pool, wherever they are computed.

    Rows' seats are below `max_num_seqs`. `observer` is called with the sampling rows, each once
    for every position that is sampled, and their logits float32 [positions, vocab], before tokens
    are chosen; the logits are gone when it returns.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        max_num_seqs: int = 128,
        observer: Observer | None = None,
    ) -> None:
        self._executor = executor
        self._pool = executor.pool
        self._observer = observer
        self._shaper = Shaper(max_num_seqs, executor.vocab_size, device=self._pool.device)

    @torch.inference_mode()
    def run(self, batch: Batch) -> StepResult:
        """Moves first, then all rows together. A row that samples yields its tokens."""
        self._shaper.vacate(batch.vacated)
        self._pool.move(batch.moves)
        if not batch.rows:
            return StepResult(())
        for row in batch.rows:
            _check(row)
        logits, scores = self._forward(batch.rows)
        results = self._sample(batch.rows, logits)
        for number, found in scores.items():
            results[number] = _with_prompt_scores(results[number], found)
        return StepResult(results)

    def _sample(self, rows: Sequence[Row], logits: torch.Tensor) -> list[RowResult]:
        """The results of all rows, given logits of those that sample."""
        chosen = picks(rows)
        if not chosen:
            return [RowResult()] * len(rows)
        sampling = [pick.row for pick in chosen]
        if self._observer is not None:
            self._observer(sampling, logits)
        shaped = self._shaper.shape(sampling, logits)
        draws = [_draw(pick) for pick in chosen]
        sampled = sample(logits, draws, shaped=shaped, choose=self._executor.choose)
        results = iter(with_candidates(sampling, logits, sampled))
        return [agreed(row, results) if row.samples else RowResult() for row in rows]

    def _forward(
        self, rows: Sequence[Row]
    ) -> tuple[torch.Tensor, dict[int, tuple[TokenScores, ...] | None]]:
        """Logits of the rows that sample, float32 [rows, vocab], and prompt scores by row."""
        pool, executor = self._pool, self._executor
        inputs = step_inputs(rows, block_tokens=pool.block_tokens, device=pool.device)
        pool.wipe(inputs.begun_blocks)
        spans = owed_spans(rows)
        wanted = inputs.logit_rows
        if spans:
            wanted = torch.cat((wanted, flat_places(spans, device=pool.device)))
        hidden = executor.hidden(inputs, wanted)
        n_sampling = len(inputs.logit_rows)
        scores: dict[int, tuple[TokenScores, ...] | None] = {}
        if spans:  # first: logits are gone with the next call
            scores = score_spans(rows, spans, hidden=hidden[n_sampling:], logits_of=executor.logits)
        return executor.logits(hidden[:n_sampling]), scores


def _check(row: Row) -> None:
    """What the scheduler does not plan yet and this runner does not do."""
    sampled_from = row.end - 1 - len(row.drafts) if row.samples else row.end
    assert row.logits_from == sampled_from or row.request.scored <= row.logits_from < sampled_from


def _with_prompt_scores(result: RowResult, scores: tuple[TokenScores, ...] | None) -> RowResult:
    if scores is None or result.error is not None:
        return RowResult(error=result.error or BROKEN)
    generated = () if result.scores is None else result.scores.generated
    return result._replace(scores=StepScores(scores, generated))


def _draw(pick: Pick) -> Draw:
    request = pick.row.request
    params = request.sampling
    assert isinstance(params, SamplingParams)
    return Draw(params, request.choice, pick.position)
