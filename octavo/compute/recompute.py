"""A runner that computes every sequence from its first token in every step, as without a KV cache.

For ablations only. Owns the rows that it adds to a batch. K and V of what a batch itself computes
go into the pool as ever, since attention reads nothing else; what is computed again is not stored
again, and no answer can come out differently.
"""

from __future__ import annotations

from itertools import pairwise

from octavo.core.batch import Batch, Row, Runner, StepResult


class Recompute:
    """Around a `runner` whose batches have at most `max_tokens` tokens in `max_rows` rows."""

    def __init__(self, runner: Runner, *, max_tokens: int, max_rows: int) -> None:
        self._runner = runner
        self._max_tokens = max_tokens
        self._max_rows = max_rows
        self.recomputed_tokens = 0

    def run(self, batch: Batch) -> StepResult:
        """What `batch` has left out goes first, and beside its rows as far as there is room."""
        before = [piece for row in batch.rows for piece in self._before(row)]
        self.recomputed_tokens += sum(piece.end - piece.start for piece in before)
        parts = self._packed(before, batch.rows)
        for rows in parts[:-1]:
            self._runner.run(batch._replace(rows=rows))
            batch = batch._replace(moves=[], vacated=[])
        result = self._runner.run(batch._replace(rows=parts[-1]))
        return StepResult(result.rows[len(parts[-1]) - len(batch.rows) :])

    def _before(self, row: Row) -> list[Row]:
        """Everything before `row`, in rows that store nothing and yield nothing."""
        cuts = [*range(0, row.start, self._max_tokens), row.start]
        return [
            row._replace(
                start=start, end=end, write_from=end, logits_from=end, drafts=(), samples=False
            )
            for start, end in pairwise(cuts)
        ]

    def _packed(self, before: list[Row], own: list[Row]) -> list[list[Row]]:
        """Batches that the runner can take; `own` are the last rows of the last one."""
        parts, free_tokens = [list(own)], self._max_tokens - sum(row.end - row.start for row in own)
        for piece in before:
            n_tokens = piece.end - piece.start
            if n_tokens > free_tokens or len(parts[0]) == self._max_rows:
                parts.insert(0, [])
                free_tokens = self._max_tokens
            parts[0].insert(0, piece)
            free_tokens -= n_tokens
        return parts
