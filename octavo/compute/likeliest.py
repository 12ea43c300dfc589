"""The likeliest tokens of a row, and log-probabilities for the caller. Knows no sampling."""

from __future__ import annotations

import math

import torch

from octavo.core.sampling import TokenScores

CHUNK = 256  # logits reduced together: full-width reductions by index are several times slower


def best(logits: torch.Tensor) -> torch.Tensor:
    """Likeliest token id of each row of logits [rows, vocab]: [rows]; the lowest of equal ones."""
    rows, vocab = logits.shape
    whole = vocab // CHUNK
    highest = [logits[:, : whole * CHUNK].view(rows, whole, CHUNK).amax(-1)] if whole else []
    if vocab % CHUNK:
        highest.append(logits[:, whole * CHUNK :].amax(-1, keepdim=True))
    chunk = torch.cat(highest, dim=1).argmax(-1, keepdim=True)
    # Past the end the last id is repeated: the first of equal ones is still a real one.
    ids = chunk * CHUNK + torch.arange(CHUNK, device=logits.device)
    ids.clamp_(max=vocab - 1)
    return ids.gather(1, logits.gather(1, ids).argmax(-1, keepdim=True)).squeeze(1)


def likeliest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and token ids [rows, count] of logits [rows, vocab], by (value down, id up).

    `topk` picks freely among equal values; where that could matter a row is sorted in full, so the
    order is a function of the row alone.
    """
    vocab = logits.shape[1]
    count = min(count, vocab)
    if count * 4 >= vocab:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    # One more than asked for: equal to the last one asked for, it might have been taken instead.
    ids = logits.topk(count + 1, dim=-1, sorted=False).indices.sort(dim=-1).values
    values, order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(1, order)
    # Among forbidden tokens, at -inf, no order matters: they weigh nothing.
    tied = (values[:, count - 1] == values[:, count]) & (values[:, count] > -math.inf)
    unclear = tied.nonzero().flatten()
    values, ids = values[:, :count], ids[:, :count]
    if unclear.numel():
        full, full_ids = logits[unclear].sort(dim=-1, descending=True, stable=True)
        values[unclear], ids[unclear] = full[:, :count], full_ids[:, :count]
    return values, ids


def token_scores(
    logits: torch.Tensor, tokens: torch.Tensor, *, counts: list[int]
) -> list[TokenScores]:
    """Log-probabilities of `tokens` [rows] and of the `counts` likeliest ones of each row.

    logits: float32 [rows, vocab] as the model gave them: no temperature, no truncation. Among equal
    values the lower id ranks first.
    """
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(1, tokens[:, None])
    earlier = torch.arange(logits.shape[1], device=logits.device) < tokens[:, None]
    ranks = 1 + ((logprobs > chosen) | ((logprobs == chosen) & earlier)).sum(-1)
    taken = list(zip(chosen.flatten().tolist(), ranks.tolist(), strict=True))
    most = max(counts)
    if not most:
        return [TokenScores(own, ()) for own in taken]
    values, ids = likeliest(logprobs, most)
    tops = [
        tuple(zip(row_ids[:count], row_values[:count], strict=True))
        for row_ids, row_values, count in zip(ids.tolist(), values.tolist(), counts, strict=True)
    ]
    return [TokenScores(own, top) for own, top in zip(taken, tops, strict=True)]
