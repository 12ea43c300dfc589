"""Which tokens each running request has had, and what its penalties make of that.

Owns the counts per seat. Counts follow a request token by token; a new owner of a seat starts anew.
A step costs as much as a request has different tokens, whatever the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octavo.core.batch import Row
from octavo.core.request import Request


@dataclass(slots=True)
class _Owner:
    """Who has a seat: `counted` of its tokens are in the counts, `seen` are the different ones."""

    request: Request
    counted: int
    seen: set[int]


class TokenCounts:
    """Per seat: its different tokens in the order they came, and how often each was generated."""

    def __init__(self, seats: int, vocab: int, *, device: torch.device) -> None:
        # On a CPU, zeros of numpy take memory only where they are written.
        self._generated = torch.from_numpy(np.zeros((seats, vocab), np.int32)).to(device)
        self._tokens = torch.from_numpy(np.zeros((seats, vocab), np.int64)).to(device)
        self._owners: dict[int, _Owner] = {}
        self._device = device

    def vacate(self, seats: Sequence[int]) -> None:
        """These seats have lost their owners."""
        for seat in seats:
            self._owners.pop(seat, None)

    def penalise(self, rows: Sequence[tuple[int, Row]], logits: torch.Tensor) -> None:
        """Take the penalties of `rows` from logits float32 [any, vocab], in place.

        rows: each with its number in `logits`. repetition first: l / r where l > 0, else l * r, for
        tokens of the prompt or generated; then l - frequency * count - presence * (count > 0), for
        generated ones (OpenAI's formula).
        """
        self._follow([row for _, row in rows])
        seats = [row.seat for _, row in rows]
        lengths = [len(self._owners[seat].seen) for seat in seats]
        tokens = torch.cat([self._tokens[seat, :n] for seat, n in zip(seats, lengths, strict=True)])
        spread = torch.tensor(lengths, device=self._device)
        where = self._ids([number for number, _ in rows]).repeat_interleave(spread)
        counts = self._generated[self._ids(seats).repeat_interleave(spread), tokens]
        asked = [row.request.sampling for _, row in rows]
        repetition, frequency, presence = torch.tensor(
            [
                [params.repetition_penalty for params in asked],
                [params.frequency_penalty for params in asked],
                [params.presence_penalty for params in asked],
            ],
            dtype=torch.float32,
            device=self._device,
        ).repeat_interleave(spread, dim=1)
        values = logits[where, tokens]
        values = torch.where(values > 0, values / repetition, values * repetition)
        values -= frequency * counts
        values -= presence * (counts > 0)
        logits[where, tokens] = values

    def _follow(self, rows: Sequence[Row]) -> None:
        """Count the tokens that have come since a request was last seen in its seat."""
        seats: list[int] = []
        tokens: list[int] = []
        for row in rows:
            owner = self._owners.get(row.seat)
            if owner is None or owner.request is not row.request:
                owner = self._take_seat(row.request, row.seat)
            fresh = row.request.tokens[owner.counted :]
            owner.counted += len(fresh)
            self._list(fresh, row.seat, owner=owner)
            seats += [row.seat] * len(fresh)
            tokens += fresh
        if tokens:
            where = (self._ids(seats), self._ids(tokens))
            one = torch.ones((), dtype=torch.int32, device=self._device)
            self._generated.index_put_(where, one, accumulate=True)

    def _take_seat(self, request: Request, seat: int) -> _Owner:
        owner = self._owners[seat] = _Owner(request, request.n_prompt, set())
        self._generated[seat].zero_()
        self._list(request.tokens[: request.n_prompt], seat, owner=owner)
        return owner

    def _list(self, tokens: list[int], seat: int, *, owner: _Owner) -> None:
        """Add those of `tokens` that the seat's owner has not had yet."""
        new = list(dict.fromkeys(token for token in tokens if token not in owner.seen))
        if new:
            n_seen = len(owner.seen)
            self._tokens[seat, n_seen : n_seen + len(new)] = self._ids(new)
            owner.seen.update(new)

    def _ids(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.int64, device=self._device)
