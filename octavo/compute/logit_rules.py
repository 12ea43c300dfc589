"""What requests ask of single tokens by name: favour, allow, forbid. Owns the rules per seat.

What stays the same for a whole request is made tensors once; what depends on the tokens so far
(minimum length, words of several tokens) is looked up in each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.core.batch import Row
from octavo.core.request import Request
from octavo.core.sampling import SamplingParams


@dataclass(slots=True)
class _Rules:
    """The rules of the request in one seat.

    biased, biases  tokens and what is added to their logits; None for none
    allowed  the only tokens that may come; None for all
    never    tokens that may not come at all
    ends     tokens that may not come before `min_tokens`
    words    last token but one of a bad word -> (its tokens but the last, the last one)
    """

    request: Request
    biased: torch.Tensor | None
    biases: torch.Tensor | None
    allowed: torch.Tensor | None
    never: list[int]
    ends: list[int]
    min_tokens: int
    words: dict[int, list[tuple[list[int], int]]]

    def forbidden(self) -> list[int]:
        """Tokens that may not come next, but for those that are not `allowed`."""
        tokens, n_prompt = self.request.tokens, self.request.n_prompt
        n_generated = len(tokens) - n_prompt
        found = self.never + self.ends if n_generated < self.min_tokens else list(self.never)
        for start, last in self.words.get(tokens[-1], ()):
            if len(start) <= n_generated and tokens[-len(start) :] == start:
                found.append(last)
        return found


class LogitRules:
    def __init__(self, vocab: int, *, device: torch.device) -> None:
        self._vocab = vocab
        self._device = device
        self._rules: dict[int, _Rules] = {}

    def vacate(self, seats: Sequence[int]) -> None:
        """These seats have lost their owners."""
        for seat in seats:
            self._rules.pop(seat, None)

    def apply(self, rows: Sequence[tuple[int, Row]], logits: torch.Tensor) -> None:
        """Change logits float32 [any, vocab] in place: biases added, forbidden ones -inf.

        rows: each with its number in `logits`.
        """
        known = [(number, self._of(row)) for number, row in rows]
        self._favour(known, logits)
        self._allow(known, logits)
        where: list[int] = []
        tokens: list[int] = []
        for number, rules in known:
            forbidden = rules.forbidden()
            where += [number] * len(forbidden)
            tokens += forbidden
        if tokens:
            logits[self._ids(where), self._ids(tokens)] = -math.inf

    def _favour(self, known: list[tuple[int, _Rules]], logits: torch.Tensor) -> None:
        where: list[int] = []
        tokens: list[torch.Tensor] = []
        biases: list[torch.Tensor] = []
        for number, rules in known:
            if rules.biased is not None and rules.biases is not None:
                where += [number] * len(rules.biased)
                tokens.append(rules.biased)
                biases.append(rules.biases)
        if where:
            logits[self._ids(where), torch.cat(tokens)] += torch.cat(biases)

    def _allow(self, known: list[tuple[int, _Rules]], logits: torch.Tensor) -> None:
        numbers = [number for number, rules in known if rules.allowed is not None]
        if not numbers:
            return
        allowed = [rules.allowed for _, rules in known if rules.allowed is not None]
        spread = self._ids([len(each) for each in allowed])
        place = self._ids(numbers).repeat_interleave(spread), torch.cat(allowed)
        kept = logits[place]
        logits[self._ids(numbers)] = -math.inf
        logits[place] = kept

    def _of(self, row: Row) -> _Rules:
        rules = self._rules.get(row.seat)
        if rules is None or rules.request is not row.request:
            rules = self._rules[row.seat] = self._made(row.request)
        return rules

    def _made(self, request: Request) -> _Rules:
        params = request.sampling
        assert isinstance(params, SamplingParams)
        bias, allowed = params.logit_bias, params.allowed_token_ids
        rules = _Rules(
            request,
            biased=self._ids(list(bias)) if bias else None,
            biases=torch.tensor(list(bias.values()), dtype=torch.float32, device=self._device)
            if bias
            else None,
            allowed=None if allowed is None else self._ids(list(dict.fromkeys(allowed))),
            never=[],
            ends=sorted(token for token in request.limits.stop_ids if token < self._vocab),
            min_tokens=params.min_tokens,
            words={},
        )
        for word in params.bad_words:
            assert not isinstance(word, str)  # made tokens when the request was prepared
            *start, last = word
            if last >= self._vocab:  # the tokenizer knows it, the model cannot produce it
                continue
            if start:
                rules.words.setdefault(start[-1], []).append((start, last))
            else:
                rules.never.append(last)
        return rules

    def _ids(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.int64, device=self._device)
