"""What was seen of one request: when it was sent, when its tokens came, and how it ended.

The definitions of TTFT, TPOT, ITL and E2E are here and nowhere else; they are vLLM's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True, kw_only=True)
class Record:
    """One request. Times in seconds on the clock of whoever measures.

    `piece_times`: when each piece with new tokens came; usually a piece is one token.
    `error` names what went wrong; such a request counts as failed and in no latency.
    """

    prompt_tokens: int
    sent_at: float
    piece_times: list[float] = field(default_factory=list)
    output_tokens: int = 0
    cached_tokens: int = 0
    ended_at: float | None = None
    error: str | None = None

    @property
    def completed(self) -> bool:
        return self.error is None and self.ended_at is not None and bool(self.piece_times)

    @property
    def ttft_seconds(self) -> float:
        """Time to first token: from sending to the first piece."""
        return self.piece_times[0] - self.sent_at

    @property
    def e2e_seconds(self) -> float:
        """From sending to the last piece."""
        return self.piece_times[-1] - self.sent_at

    @property
    def tpot_seconds(self) -> float | None:
        """Time per output token after the first: (E2E - TTFT) / (tokens - 1); None for one."""
        if self.output_tokens < 2:
            return None
        return (self.e2e_seconds - self.ttft_seconds) / (self.output_tokens - 1)

    @property
    def itl_seconds(self) -> list[float]:
        """Inter-token latencies: each time between two pieces that follow each other."""
        return [later - earlier for earlier, later in pairwise(self.piece_times)]
