"""Timing an answer, Ctrl-C at a safe moment, and sizes in words."""

from __future__ import annotations

import signal

import pytest

from octavo.cli.interrupt import deferred_interrupt
from octavo.cli.turn import Turn
from octavo.cli.units import count, size
from octavo.engine.types import Usage


def turn(n_tokens: int, *, ttft: float | None = 0.5, seconds: float = 1.5) -> Turn:
    return Turn(
        text="",
        token_ids=tuple(range(n_tokens)),
        finish_reason="stop",
        usage=Usage(20, n_tokens, 16),
        receipt=None,
        ttft_seconds=ttft,
        seconds=seconds,
        interrupted=False,
    )


def test_rate_counts_the_tokens_after_the_first() -> None:
    assert turn(11).tokens_per_second == pytest.approx(10)
    assert turn(1).tokens_per_second is None
    assert turn(0, ttft=None).tokens_per_second is None
    assert turn(2, seconds=0.5).tokens_per_second is None


def test_summary() -> None:
    assert turn(11).summary() == (
        "prompt 16 cached + 4 new tokens · 11 generated · TTFT 0.500 s · 10.0 tokens/s"
    )


def test_first_interrupt_is_noted_and_the_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupt:
        assert not interrupt.pending
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pending
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (46080, "45.0 KiB"),
        (327680 * 131072, "40.0 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes(n_bytes: int, text: str) -> None:
    assert size(n_bytes) == text


def test_counts() -> None:
    assert count(131072) == "131,072"
