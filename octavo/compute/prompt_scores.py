"""Log-probabilities of prompt tokens, in tiles of rows, so that memory does not grow with the step.

Owns which positions of a batch are owed and their tiling. Knows no layers and no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from octavo.compute.likeliest import token_scores
from octavo.core.batch import Row
from octavo.core.sampling import TokenScores

TILE_ROWS = 64  # logits of as many positions exist at once: 39 MB with 150,000 tokens


class Span(NamedTuple):
    """Positions [first, stop) of row number `row`, whose next tokens are prompt tokens to score.

    `flat`: the first one's place among the flattened tokens of the batch.
    """

    row: int
    flat: int
    first: int
    stop: int


def owed_spans(rows: Sequence[Row]) -> list[Span]:
    """What of a batch is to be scored: the rows whose logits are wanted before the prompt's end."""
    spans = []
    flat = 0
    for number, row in enumerate(rows):
        stop = min(row.end, row.request.n_prompt - 1)
        if row.logits_from < stop:
            first = row.logits_from
            spans.append(Span(number, flat + first - row.start, first, stop))
        flat += row.end - row.start
    return spans


def flat_places(spans: Sequence[Span], *, device: torch.device) -> torch.Tensor:
    """The spans' positions among the flattened tokens, span after span: int64 [positions]."""
    places = [torch.arange(span.flat, span.flat + span.stop - span.first) for span in spans]
    return torch.cat(places).to(device)


def score_spans(
    rows: Sequence[Row],
    spans: Sequence[Span],
    *,
    hidden: torch.Tensor,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
) -> dict[int, tuple[TokenScores, ...] | None]:
    """Row number -> scores of the tokens that follow its span; None if its logits are not finite.

    hidden: [positions, hidden], span after span; `logits_of` makes float32 [rows, vocab] of some.
    """
    tokens: list[int] = []
    counts: list[int] = []
    for span in spans:
        request = rows[span.row].request
        tokens += request.tokens[span.first + 1 : span.stop + 1]
        counts += [request.sampling.prompt_logprobs or 0] * (span.stop - span.first)
    targets = torch.tensor(tokens, dtype=torch.int64, device=hidden.device)
    scores: list[TokenScores] = []
    sound: list[bool] = []
    for begin in range(0, len(tokens), TILE_ROWS):
        tile = slice(begin, begin + TILE_ROWS)
        logits = logits_of(hidden[tile])
        sound += logits.sum(dim=-1).isfinite().tolist()
        scores += token_scores(logits, targets[tile], counts=counts[tile])
    found: dict[int, tuple[TokenScores, ...] | None] = {}
    begin = 0
    for span in spans:
        end = begin + span.stop - span.first
        found[span.row] = tuple(scores[begin:end]) if all(sound[begin:end]) else None
        begin = end
    return found
