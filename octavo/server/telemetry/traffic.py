"""What requests have come to since the start: counts and histograms. Owned by the event loop.

Knows no names of metrics and no engine.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from octavo.core.histogram import Histogram
from octavo.server.telemetry.buckets import (
    CHOICES,
    FIRST_TOKEN_SECONDS,
    REQUEST_SECONDS,
    TOKEN_SECONDS,
    token_bounds,
)
from octavo.server.telemetry.generation import Outcome

FINISHES = ("stop", "length", "abort", "error")


class Answer(NamedTuple):
    """An HTTP answer as it is counted. `route` is a template, never what a caller wrote."""

    route: str
    method: str
    status: int


class Traffic:
    """The attributes are the counts; `token_bounds` of the model's context bound the token ones."""

    def __init__(self, *, max_model_len: int) -> None:
        tokens = token_bounds(max_model_len)
        self.first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token = Histogram(TOKEN_SECONDS)
        self.per_output_token = Histogram(TOKEN_SECONDS)
        self.duration = Histogram(REQUEST_SECONDS)
        self.queue = Histogram(REQUEST_SECONDS)
        self.inference = Histogram(REQUEST_SECONDS)
        self.prefill = Histogram(REQUEST_SECONDS)
        self.decode = Histogram(REQUEST_SECONDS)
        self.prompt = Histogram(tokens)
        self.output = Histogram(tokens)
        self.longest_output = Histogram(tokens)
        self.max_tokens = Histogram(tokens)
        self.prefilled = Histogram(tokens)
        self.choices = Histogram(CHOICES)
        self.finishes = Counter(dict.fromkeys(FINISHES, 0))
        self.answers: Counter[Answer] = Counter()
        self.requests = 0
        self.written: Counter[str] = Counter({"5m": 0, "1h": 0, "implicit": 0})
        self.unkept_tokens = 0
        self.shared_in_flight_tokens = 0
        self.recomputed_tokens = 0
        self.lost_slots = 0
        self.block_seconds = 0.0

    def ended(self, outcome: Outcome) -> None:
        """A request to the engine is over."""
        self.requests += 1
        self.finishes.update(outcome.finishes)
        self._take_account(outcome)
        self._take_times(outcome)
        self.choices.add(outcome.n)
        if outcome.max_tokens is not None:
            self.max_tokens.add(outcome.max_tokens)
        if outcome.first_token_seconds is not None:
            self.prompt.add(outcome.prompt_tokens)
            self.prefilled.add(outcome.prompt_tokens - outcome.read_tokens)
            self.output.add(outcome.output_tokens)
            self.longest_output.add(max(outcome.lengths))

    def _take_account(self, outcome: Outcome) -> None:
        self.written["5m"] += outcome.written_5m_tokens
        self.written["1h"] += outcome.written_1h_tokens
        self.written["implicit"] += outcome.written_implicit_tokens
        self.unkept_tokens += outcome.unkept_tokens
        self.shared_in_flight_tokens += outcome.shared_in_flight_tokens
        self.recomputed_tokens += outcome.recomputed_tokens
        self.lost_slots += outcome.lost_slots
        self.block_seconds += outcome.block_seconds

    def _take_times(self, outcome: Outcome) -> None:
        self.duration.add(outcome.duration_seconds)
        prefill, decode = outcome.prefill_seconds, outcome.decode_seconds
        if outcome.queue_seconds is not None:
            self.queue.add(outcome.queue_seconds)
        if prefill is not None:
            self.prefill.add(prefill)
        if decode is not None:
            self.decode.add(decode)
            if max(outcome.lengths) > 1:
                self.per_output_token.add(decode / (max(outcome.lengths) - 1))
        if prefill is not None and decode is not None:
            self.inference.add(prefill + decode)
