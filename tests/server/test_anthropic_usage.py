"""Usage of Anthropic's shape: it adds up, and says what was kept because it was asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.receipt import Receipt
from octavo.server.anthropic.usage import usage_object

COUNT = st.integers(0, 60)
BLOCK = 16


@given(
    read_blocks=COUNT,
    kept=st.lists(st.booleans(), max_size=60),
    tail=st.integers(1, BLOCK),
    keeps=st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([300, 3600])), max_size=4),
)
def test_it_adds_up_to_the_prompt(
    read_blocks: int, kept: list[bool], tail: int, keeps: list[tuple[int, int]]
) -> None:
    receipt, end = Receipt(), read_blocks * BLOCK
    for place, ttl_seconds in keeps:
        receipt.take_pin(place, ttl_seconds)
    receipt.take_read(end, waited_from=None)
    for each in kept:
        end += BLOCK
        receipt.take_block(end, BLOCK, kept=each)
    receipt.take_first_token(end + tail, 1.0)
    found = usage_object(receipt, prompt_tokens=end + tail, output_tokens=1)
    creation, parts = found["cache_creation_input_tokens"], found["cache_creation"]
    assert found["input_tokens"] + found["cache_read_input_tokens"] + creation == end + tail
    assert sum(parts.values()) == creation
    assert min(found["input_tokens"], *parts.values()) >= 0
    assert found["cache_read_input_tokens"] == read_blocks * BLOCK
    last = max((place for place, _ in keeps), default=0)
    hour = max((place for place, ttl in keeps if ttl == 3600), default=0)
    ends = [read_blocks * BLOCK + BLOCK * (i + 1) for i, each in enumerate(kept) if each]
    assert creation == BLOCK * sum(each <= last for each in ends)
    assert parts["ephemeral_1h_input_tokens"] == BLOCK * sum(each <= hour for each in ends)
