"""One answer as it streams: shows it, times it, and ends it on Ctrl-C. Knows no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octavo.cli.interrupt import deferred_interrupt
from octavo.core.errors import EngineError
from octavo.core.receipt import Receipt
from octavo.engine.types import Chunk, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What came out. `ttft_seconds` is the time to the first token, None if none came.

    `seconds` runs from the request to the last token. `usage` and `receipt` are None when
    interrupted.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage | None
    receipt: Receipt | None
    ttft_seconds: float | None
    seconds: float
    interrupted: bool

    @property
    def tokens_per_second(self) -> float | None:
        """Rate after the first token: (tokens - 1) over the time they took; None below two."""
        if self.ttft_seconds is None or len(self.token_ids) < 2:
            return None
        decode_seconds = self.seconds - self.ttft_seconds
        return (len(self.token_ids) - 1) / decode_seconds if decode_seconds > 0 else None

    def summary(self) -> str:
        """One line: what the cache gave, what was computed, and how fast."""
        parts = []
        if self.usage is not None:
            new = self.usage.prompt_tokens - self.usage.cached_tokens
            parts.append(f"prompt {self.usage.cached_tokens} cached + {new} new tokens")
        parts.append(f"{len(self.token_ids)} generated")
        if self.ttft_seconds is not None:
            parts.append(f"TTFT {self.ttft_seconds:.3f} s")
        rate = self.tokens_per_second
        if rate is not None:
            parts.append(f"{rate:.1f} tokens/s")
        if self.interrupted:
            parts.append("interrupted")
        return " · ".join(parts)


def play(chunks: Iterator[Chunk], show: Callable[[str], None]) -> Turn:
    """Pull the answer through, showing each piece of text. Raises EngineError if it fails.

    Ctrl-C ends the answer and not the program: closing the iterator aborts the request.
    """
    score = Score()
    with deferred_interrupt() as interrupt:
        try:
            for chunk in chunks:
                score.add(chunk)
                if chunk.text:
                    show(chunk.text)
                if interrupt.pending:
                    break
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
    return score.turn(interrupted=interrupt.pending and score.finish_reason is None)


class Score:
    """What has come so far, and when."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._usage: Usage | None = None
        self._receipt: Receipt | None = None
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._started = self._last = time.perf_counter()
        self._first: float | None = None

    def add(self, chunk: Chunk) -> None:
        if chunk.finish_reason == "error":
            raise EngineError(chunk.error or "The engine failed on this request.")
        if chunk.token_ids:
            self._last = time.perf_counter()
            self._first = self._last if self._first is None else self._first
            self._token_ids.extend(chunk.token_ids)
        self._texts.append(chunk.text)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self._usage = chunk.usage or self._usage
        self._receipt = chunk.receipt or self._receipt

    def turn(self, *, interrupted: bool) -> Turn:
        first = self._first
        return Turn(
            text="".join(self._texts),
            token_ids=tuple(self._token_ids),
            finish_reason=self.finish_reason,
            usage=self._usage,
            receipt=self._receipt,
            ttft_seconds=None if first is None else first - self._started,
            seconds=self._last - self._started,
            interrupted=interrupted,
        )
