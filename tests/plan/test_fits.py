"""Requests that fit and the memory bill, against figures that others measured or print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.errors import ConfigError
from octavo.plan.ask import Ask
from octavo.plan.cards import card_names, planned_card
from octavo.plan.fits import Room, power_of_two
from octavo.plan.formats import kv_format
from octavo.plan.lengths import fixed, of_trace
from octavo.plan.plan import planned
from octavo.plan.record import as_record
from octavo.plan.sizes import GB, GIB, KIB, parse_size
from octavo.pricing.cost import dollars_per_million

BF16 = kv_format("bfloat16")
H100_BYTES = round(79.18 * GIB)


def room(model: str, room_bytes: int, dtype: str = "bfloat16", tp: int = 1) -> Room:
    found = planned_card(model).geometry
    return Room(geometry=found, fmt=kv_format(dtype), room_bytes=room_bytes, tp=tp)


# Llama 70B in INT4 (35 GB) with 3 GB for the rest: memory, tokens, requests at 4k, 32k, 128k.
CARDS = [
    (42 * GIB, 137_625, (33, 4, 1)),  # popular: GB taken for GiB
    (80 * GB - 38 * GB, 128_173, (31, 3, 0)),  # strict
    (H100_BYTES - 38 * GB, 143_490, (35, 4, 1)),  # a real H100
]


@pytest.mark.parametrize(("room_bytes", "tokens", "requests"), CARDS)
def test_concurrency_of_llama_70b(
    room_bytes: int, tokens: int, requests: tuple[int, int, int]
) -> None:
    found = room("llama-3.1-70b", room_bytes)
    assert found.longest_context() == tokens
    for length, n in zip((4096, 32_768, 131_072), requests, strict=True):
        assert found.exact([length]).requests == n
        assert found.reserved([length // 2], length).requests == n


def test_the_bill_makes_those_rooms() -> None:
    given = {"weight_bytes": 35 * GB, "activation_bytes": 3 * GB, "non_torch_bytes": 0}
    model = planned_card("llama-3.1-70b")
    strict = planned(model, Ask(memory_bytes=80 * GB, utilisation=1.0, **given))
    real = planned(model, Ask(utilisation=1.0, **given))
    assert strict.bill.kv_room_bytes == 42 * GB
    assert real.bill.kv_room_bytes == H100_BYTES - 38 * GB
    assert round(real.bill.kv_room_bytes / 1e9, 1) == 47.0


def test_what_an_allocator_costs() -> None:
    """2,048 reserved and 500 used: a quarter of the memory works."""
    popular, strict = room("llama-3.1-70b", 42 * GIB), room("llama-3.1-70b", 42 * GB)
    assert popular.reserved([500], 2048).requests == 67
    assert strict.reserved([500], 2048).requests == 62
    assert round(100 * strict.reserved([500], 2048).used) == 24
    assert strict.exact([500]).requests == 256
    assert strict.paged([500], 16).requests == 250
    assert round(67 / 0.24, -1) == 280
    # A 4k reservation half used halves what works.
    assert popular.reserved([2048], 4096).requests == 33 == 66 // 2


def test_that_ratio_is_the_price() -> None:
    """36 users for $4 a million tokens: with room for 8 it is $18."""
    dollars_an_hour, rate_of_one = 10.0, 10.0 / 3600 / 4 * 1e6 / 36
    prices = [dollars_per_million(dollars_an_hour, n * rate_of_one) for n in (36, 8)]
    assert prices == pytest.approx([4, 18])


# Model, weights, activations, non-torch and room in GiB, tokens, ranks, dtype of K and V.
VLLM = [
    ("llama-3.1-8b", 14.99, 4.76, 0.13, 51.38, 420_904, 1, "bfloat16"),
    ("qwen3-0.6b", 1.12, 5.56, 0.13, 64.45, 603_399, 1, "bfloat16"),
    ("qwen3-32b", 61.03, 5.64, 0.14, 4.45, 18_227, 1, "bfloat16"),
    ("qwen3-32b", 30.59, 5.64, 0.54, 34.49, 282_542, 2, "bfloat16"),
    ("llama-3.3-70b", 33.88, 4.84, 0.55, 32.0, 209_715, 2, "bfloat16"),
]


@pytest.mark.parametrize(
    ("name", "weights", "activations", "rest", "gib", "tokens", "tp", "dtype"), VLLM
)
def test_rooms_that_vllm_measured(
    name: str,
    weights: float,
    activations: float,
    rest: float,
    gib: float,
    tokens: int,
    tp: int,
    dtype: str,
) -> None:
    """The formula to 0.01 GiB; from the measured room, the tokens within a block."""
    ask = Ask(
        gpus=tp,
        kv_cache_dtype=dtype,
        weight_bytes=round(tp * weights * GIB),
        activation_bytes=round(activations * GIB),
        non_torch_bytes=round(rest * GIB),
    )
    plan = planned(planned_card(name), ask)
    assert plan.bill.kv_room_bytes is not None
    assert plan.bill.kv_room_bytes / GIB == pytest.approx(gib, abs=0.0151)
    measured = room(name, round(gib * GIB), dtype, tp)
    assert abs(measured.longest_context() - tokens) < 16
    assert abs(measured.blocks(16) - tokens // 16) <= 1


def test_defaults_come_within_a_percent_of_vllm() -> None:
    plan = planned(planned_card("llama-3.1-8b"), Ask())
    assert plan.bill.kv_room_bytes is not None
    assert plan.bill.kv_room_bytes / GIB == pytest.approx(51.38, rel=0.01)


def test_mistral_small_in_blocks_of_128() -> None:
    tokens = 184_832
    found = room("mistral-small-3.2-24b", tokens * 163_840)
    assert found.blocks(128) == 1444 == tokens // 128
    assert -(-15_049 // 128) == 118
    assert round(100 * 118 / 1444, 2) == 8.17
    assert round(found.room_bytes / GIB, 2) == 28.20
    assert tokens // 16_000 == 11
    assert round(tokens / 16_000, 2) == 11.55


def test_llama_8b_on_an_h100() -> None:
    """Reserving the maximum, 8,192 or paging: 3, 51, 320 requests."""
    found = room("llama-3.1-8b", 420_904 * 131_072)
    assert found.reserved([1312], 131_072).requests == 3
    assert found.reserved([1312], 8192).requests == 51
    assert found.paged([1312], 16).requests == 320
    plan = planned(planned_card("llama-3.1-8b"), Ask(lengths=fixed(1312)))
    assert [one.requests for one in plan.allocators()] == [3, 205, 320, 320, 273, 320]


def test_lost_slots_of_a_block_size() -> None:
    """A prompt of 1,024 and 10 answered: 65 blocks, 6 slots lost; 1,014 when reserved."""
    found = room("llama-3.1-70b", 42 * GB)
    paged = found.paged([1034], 16)
    assert (paged.lost_slots, round(100 * 6 / 1040, 1)) == (6, 0.6)
    assert paged.request_bytes == 65 * 16 * 320 * KIB
    reserved = found.reserved([1034], 2048)
    assert (reserved.lost_slots, round(100 * (1 - reserved.used), 1)) == (1014, 49.5)
    for block, mib in ((16, 4.7), (256, 79.7)):
        lost = found.paged([block + 1], block).lost_slots
        assert lost == block - 1
        assert round(lost * 320 * KIB / (1 << 20), 1) == mib


def test_a_number_of_blocks_replaces_the_bill() -> None:
    plan = planned(planned_card("llama-3.1-8b"), Ask(num_blocks=26_306, weight_bytes=70 * GIB))
    assert plan.room is not None
    assert plan.room.longest_context() == 26_306 * 16
    assert plan.room.blocks(16) == 26_306


def test_blocks_are_as_many_as_were_given_where_layers_have_windows() -> None:
    record = as_record(planned(planned_card("gemma-3-27b"), Ask(num_blocks=1000)))
    assert record["fits"]["blocks"] == 1000
    assert record["memory"]["kv_room_bytes"] == 1000 * record["kv"]["bytes_per_block"]


def test_no_room_is_said_and_not_counted() -> None:
    plan = planned(planned_card("llama-3.1-405b"), Ask())
    assert plan.room is None
    assert plan.allocators() == []
    assert "no room" in plan.no_room
    unknown = planned(planned_card("deepseek-v4-pro"), Ask())
    assert "--weight-size" in unknown.no_room


@given(
    lengths=st.lists(st.integers(1, 8192), min_size=1, max_size=20),
    block=st.sampled_from([1, 16, 256]),
    name=st.sampled_from(["llama-3.1-8b", "gemma-3-4b", "deepseek-v3", "qwen3.5-27b"]),
)
def test_no_allocator_beats_the_byte(lengths: list[int], block: int, name: str) -> None:
    found = room(name, 40 * GIB)
    exact, paged = found.exact(lengths), found.paged(lengths, block)
    pow2, reserved = found.reserved_pow2(lengths, 8192), found.reserved(lengths, 8192)
    assert exact.requests >= paged.requests >= 0
    assert exact.requests >= pow2.requests >= reserved.requests
    assert 0 <= paged.lost_slots < block
    assert reserved.used <= pow2.used <= exact.used == 1
    if block == 1:
        assert paged == pytest.approx(paged)
        assert paged.requests == exact.requests
    assert 0 < exact.requests * exact.request_bytes <= found.room_bytes


@given(tokens=st.integers(0, 1 << 20), name=st.sampled_from(card_names()))
def test_bytes_never_fall_with_length(tokens: int, name: str) -> None:
    """Which is what the search for the longest context rests on."""
    found = planned_card(name).geometry
    less, more = (found.sequence_bytes(n, BF16) for n in (tokens, tokens + 1))
    assert 0 <= less <= more
    assert found.paged_bytes(tokens, BF16, block_tokens=16) >= less


@given(room_bytes=st.integers(0, 1 << 38), name=st.sampled_from(["gemma-3-4b", "qwen3.5-27b"]))
def test_the_longest_context_is_the_longest(room_bytes: int, name: str) -> None:
    found = room(name, room_bytes)
    longest = found.longest_context(1 << 24)
    assert found.geometry.sequence_bytes(longest, BF16) <= room_bytes
    if longest < 1 << 24:
        assert found.geometry.sequence_bytes(longest + 1, BF16) > room_bytes


def test_powers_of_two() -> None:
    assert [power_of_two(n) for n in (1, 2, 3, 500, 512, 513)] == [1, 2, 4, 512, 512, 1024]


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ('{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0]}\n', [7255]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nx,374,44\nx,396,109\n", [418, 505]),
        ('{"block_size": 64, "requests": [{"t": 0, "in": 100, "out": 5}]}', [105]),
        ('{"requests": [{"in": 9, "out": 1}]}\n{"requests": [{"in": 20, "out": 2}]}\n', [10, 22]),
    ],
)
def test_traces(text: str, lengths: list[int]) -> None:
    found = of_trace(text, "trace")
    assert found.tokens == lengths
    assert [sum(pair) for pair in found.pairs] == lengths


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "TIMESTAMP,ContextTokens\nx,374\n",
        "ContextTokens,GeneratedTokens\n-1,5\n",
        '{"input_length": 1, "output_length": 1e9}\n',
        '{"input_length": true, "output_length": 1}\n',
        '{"input_length": 1, "output_length": 1}\n{"input_length": 1',
        '{"requests": [{"in": "many", "out": 5}]}',
        '{"requests": [3]}',
        '{"requests": []}',
        '{"requests": [{"in": 9, "out": 1}]}\n{"requests": ',
        "[" * 100_000,
        '{"requests": ' + "[" * 100_000,
    ],
)
def test_damaged_traces_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of_trace(text, "trace")
    assert caught.value.param == "lengths"


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("80GB", 80 * GB), ("79.18 GiB", H100_BYTES), ("1kb", 1000), ("512MiB", 512 << 20), ("0B", 0)],
)
def test_sizes_have_a_unit(text: str, n_bytes: int) -> None:
    assert parse_size(text, "memory") == n_bytes


@pytest.mark.parametrize("text", ["80", "80G", "GB", "-1GB", "1e3GB", "9999999999TB", "", "80 GB!"])
def test_sizes_without_one_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="memory"):
        parse_size(text, "memory")


@pytest.mark.parametrize(
    "field",
    [
        {"gpus": 0},
        {"gpus": 1 << 20},
        {"context": 0},
        {"block_size": 0},
        {"utilisation": 1.5},
        {"utilisation": float("nan")},
        {"gpu_price": -1.0},
        {"itl_ms": 0.0},
        {"link_gbit": float("inf")},
        {"mfu_prefill": 2.0},
        {"num_blocks": 0},
    ],
)
def test_demands_are_bounded(field: dict[str, float]) -> None:
    (name,) = field
    with pytest.raises(ConfigError) as caught:
        Ask(**field)  # type: ignore[arg-type]
    assert caught.value.param == name
