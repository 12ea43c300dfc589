"""When the tokens of one load came, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds since the load was handed over: to the end, and to each request's first token."""

    seconds: float
    first_s: tuple[float, ...]

    def prefill_rate(self, prompt_tokens: int) -> float:
        """Prompt tokens per second of a single request, its first token included in the time."""
        return prompt_tokens / self.first_s[0]

    def decode_rate(self, out_tokens: int) -> float:
        """Tokens per second once every request has its first; each gets `out_tokens` in all.

        A request that began before the last one has decoded a token in every step in which
        others began; those tokens came before the window and do not count.
        """
        steps = sorted(set(self.first_s))
        early = sum(len(steps) - 1 - steps.index(first) for first in self.first_s)
        counted = len(self.first_s) * (out_tokens - 1) - early
        return counted / (self.seconds - steps[-1])
