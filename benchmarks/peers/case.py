"""What every engine is asked to do: the loads, and the prompts they are made of."""

from __future__ import annotations

import random
from dataclasses import dataclass

LOW_ID, HIGH_ID = 1_000, 40_000  # ordinary tokens of the default model, none of them special


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load. `figure` says what is taken from it: prefill, decode, or seconds for all of it."""

    name: str
    title: str
    figure: str
    n_requests: int
    prompt_tokens: int
    out_tokens: int
    common_tokens: int = 0
    repeats: int = 1

    @property
    def unit(self) -> str:
        return "s" if self.figure == "seconds" else "tokens/s"

    def prompts(self, seed: str) -> list[list[int]]:
        """Token ids, equal for every engine that gives the same `seed`, new for another."""
        rnd = random.Random(f"{self.name} {seed}")
        common = _ids(rnd, self.common_tokens)
        own = self.prompt_tokens - self.common_tokens
        return [common + _ids(rnd, own) for _ in range(self.n_requests)]


def _ids(rnd: random.Random, n: int) -> list[int]:
    return [rnd.randrange(LOW_ID, HIGH_ID) for _ in range(n)]


CASES = (
    Case(
        name="prefill_1024",
        title="prefill, 1,024 tokens",
        figure="prefill",
        n_requests=1,
        prompt_tokens=1024,
        out_tokens=1,
        repeats=2,
    ),
    Case(
        name="decode_1",
        title="decode ×1, 16 in",
        figure="decode",
        n_requests=1,
        prompt_tokens=16,
        out_tokens=97,
        repeats=3,
    ),
    Case(
        name="decode_1_at_1024",
        title="decode ×1, 1,024 in",
        figure="decode",
        n_requests=1,
        prompt_tokens=1024,
        out_tokens=65,
        repeats=2,
    ),
    Case(
        name="decode_8",
        title="decode ×8, 16 in, 96 out",
        figure="decode",
        n_requests=8,
        prompt_tokens=16,
        out_tokens=96,
    ),
    Case(
        name="decode_32",
        title="decode ×32, 128 in, 96 out",
        figure="decode",
        n_requests=32,
        prompt_tokens=128,
        out_tokens=96,
    ),
    Case(
        name="shared_prefix",
        title="shared prefix: 32 requests, 1,024 common + 64 own in, 64 out",
        figure="seconds",
        n_requests=32,
        prompt_tokens=1088,
        out_tokens=64,
        common_tokens=1024,
    ),
)
