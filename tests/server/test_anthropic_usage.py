"""Usage of Anthropic's shape: it adds up, and says what was kept because it was asked for."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.receipt import Receipt
from octavo.engine.breakpoints import Keep
from octavo.server.anthropic_usage import usage_object

COUNT = st.integers(0, 5000)
KEEP = st.builds(Keep, COUNT, st.sampled_from([300, 3600]))


def used(receipt: Receipt, keeps: list[Keep], prompt_tokens: int) -> dict[str, Any]:
    return usage_object(receipt, keeps, prompt_tokens=prompt_tokens, output_tokens=1)


@given(
    read=COUNT,
    written=st.tuples(COUNT, COUNT, COUNT),
    unkept=COUNT,
    keeps=st.lists(KEEP, max_size=4),
)
def test_it_adds_up_to_the_prompt(
    read: int, written: tuple[int, int, int], unkept: int, keeps: list[Keep]
) -> None:
    short, long, implicit = written
    receipt = Receipt(
        read=read, written_5m=short, written_1h=long, written_implicit=implicit, unkept=unkept
    )
    prompt = read + sum(written) + unkept
    found = used(receipt, keeps, prompt)
    creation = found["cache_creation_input_tokens"]
    parts = found["cache_creation"]
    assert found["input_tokens"] + found["cache_read_input_tokens"] + creation == prompt
    assert sum(parts.values()) == creation
    assert min(found["input_tokens"], *parts.values()) >= 0
    assert found["cache_read_input_tokens"] == read
    assert creation <= receipt.written
    if not keeps:
        assert creation == 0
    elif max(keep.end for keep in keeps) >= prompt:
        assert creation == receipt.written
    if all(keep.ttl_seconds == 300 for keep in keeps):
        assert parts["ephemeral_1h_input_tokens"] == 0


def test_creation_ends_at_the_last_breakpoint_and_begins_after_what_was_read() -> None:
    receipt = Receipt(read=32, written_implicit=64, unkept=4)
    for end, created in ((0, 0), (32, 0), (40, 8), (96, 64), (100, 64)):
        assert used(receipt, [Keep(end, 300)], 100)["cache_creation_input_tokens"] == created


def test_the_longest_time_names_a_token() -> None:
    receipt = Receipt(read=16, written_implicit=80, unkept=4)
    found = used(receipt, [Keep(48, 3600), Keep(48, 300), Keep(64, 300)], 100)
    assert found["cache_creation"] == {
        "ephemeral_5m_input_tokens": 16,
        "ephemeral_1h_input_tokens": 32,
    }
    assert found["input_tokens"] == 36
