"""Times and money against worked figures, and refusal where nothing is calibrated."""

from __future__ import annotations

import pytest

from octavo.core.errors import ConfigError
from octavo.plan.ask import Ask
from octavo.plan.attention_traffic import (
    matrix_bytes,
    matrix_share,
    projections,
    standard_accesses,
    tiled_accesses,
    tiled_least_bytes,
)
from octavo.plan.calibration import CALIBRATIONS
from octavo.plan.cards import planned_card
from octavo.plan.formats import kv_format
from octavo.plan.lengths import fixed
from octavo.plan.plan import Plan, planned, with_query_heads
from octavo.plan.roofline import Roofline, chunks, fastest, slowest
from octavo.plan.sizes import GB, GIB, KIB, MIB
from octavo.pricing.cost import (
    break_even_bytes_per_second,
    break_even_seconds,
    dollars_per_million,
    flops_of_prefill,
    transfer_seconds,
)
from octavo.pricing.gpus import GPUS, gpu_called

TOKEN_BYTES = 327_680  # of Llama 70B


def plan(name: str, **ask: object) -> Plan:
    return planned(planned_card(name), Ask(**ask))  # type: ignore[arg-type]


def roofline(name: str, **ask: object) -> Roofline:
    found = plan(name, **ask).roofline
    assert found is not None
    return found


def test_prefill_of_llama_70b_on_four_h100() -> None:
    """MFU .45: 12,617 tokens/s before attention to earlier tokens, $0.264 a million at $3."""
    rate = roofline("llama-3.1-70b", gpus=4).prefill_tokens_per_second(0)
    assert rate == pytest.approx(12_617, rel=1e-4)
    assert round(dollars_per_million(4 * 3, rate), 3) == 0.264
    longer = roofline("llama-3.1-70b", gpus=4).prefill_tokens_per_second(32_768)
    assert longer < rate


def test_how_long_holding_pays() -> None:
    """The price over 80 GB: 77 s in HBM; 12 min in DRAM, 8.1 h on an SSD."""
    recompute = dollars_per_million(12, 12_617) / 1e6
    hbm, dram, ssd = (
        break_even_seconds(recompute, TOKEN_BYTES, dollars_per_gb_hour=price)
        for price in (3 / 80, 0.004, 0.0001)
    )
    assert round(hbm) == 77
    assert round(dram / 60) == 12
    assert round(ssd / 3600, 1) == 8.1
    assert pytest.approx(1.23e-5, rel=0.002) == 3 / 80 * TOKEN_BYTES / 1e9


def test_the_plan_says_the_same_of_a_card_of_80_gib() -> None:
    money = plan("llama-3.1-70b", gpus=4, gpu_price=3.0, memory_bytes=80 * GB).money
    assert money is not None
    pays = money.break_even(1)
    assert pays["dram"] / 60 == pytest.approx(12.1, abs=0.05)
    assert pays["ssd"] / 3600 == pytest.approx(8.06, abs=0.02)
    assert pays["hbm"] == pytest.approx(77.4 * (79.18 * GIB) / (80 * GB), rel=0.001)


@pytest.mark.parametrize(
    ("batch", "ms", "dollars"),
    [(1, 6.07, 5.05), (16, 7.17, 0.373), (64, 10.7, 0.139), (256, 24.8, 0.081)],
)
def test_decode_ladder_of_llama_8b(batch: int, ms: float, dollars: float) -> None:
    found = plan("llama-3.1-8b", gpu_price=3.0)
    assert found.roofline is not None
    assert found.money is not None
    seconds = found.roofline.decode_seconds(batch, 1500)
    assert 1000 * seconds == pytest.approx(ms, rel=0.003)
    assert found.money.output_per_million(batch, 1500) == pytest.approx(dollars, rel=0.006)
    if batch == 1:
        assert round(1 / seconds) == 165


def test_bars_lie_on_both_sides() -> None:
    line = roofline("llama-3.1-8b")
    for context in (0, 4096):
        low, middle, high = (
            line.prefill_tokens_per_second(context, pick)
            for pick in (slowest, lambda band: band.typical, fastest)
        )
        assert low < middle < high
    assert line.decode_seconds(8, 4096, fastest) < line.decode_seconds(8, 4096)
    assert line.decode_seconds(8, 4096) < line.decode_seconds(8, 4096, slowest)


def test_decode_turns_compute_bound() -> None:
    line = roofline("llama-3.1-8b")
    batch = line.compute_bound_batch(1)
    assert batch is not None
    assert line.compute_seconds(batch, 1) >= line.memory_seconds(batch, 1)
    assert line.compute_seconds(batch - 1, 1) < line.memory_seconds(batch - 1, 1)
    assert line.compute_bound_batch(8192) is None  # K and V grow with the batch as fast


def test_experts_are_read_as_the_batch_meets_them() -> None:
    parameters = planned_card("qwen3-30b-a3b").parameters
    assert parameters is not None
    assert parameters.read_by(1) == pytest.approx(parameters.active)
    assert parameters.active < parameters.read_by(8) < parameters.total
    assert parameters.read_by(1000) == pytest.approx(parameters.total, rel=1e-6)


def test_copied_heads_and_latents_are_read_by_every_rank() -> None:
    eight, four = (
        roofline("deepseek-v3", gpus=gpus, gpu="H200", weights="int4") for gpus in (8, 4)
    )
    assert eight.sequence_bytes(1000) == 2 * four.sequence_bytes(1000)
    wide, narrow = roofline("llama-3.1-8b", gpus=8), roofline("llama-3.1-8b")
    assert wide.sequence_bytes(1000) == narrow.sequence_bytes(1000)


def test_nothing_is_predicted_without_a_calibration() -> None:
    found = plan("llama-3.1-8b", gpu="RTX5090")
    assert found.roofline is None
    assert found.money is None
    assert "RTX5090" in found.no_times
    with pytest.raises(ConfigError, match="calibration"):
        plan("llama-3.1-8b", gpu="RTX5090", itl_ms=20.0)
    shares = {"mfu_prefill": 0.4, "mfu_decode": 0.2, "bandwidth_efficiency": 0.7}
    given = plan("llama-3.1-8b", gpu="RTX5090", **shares)
    assert given.roofline is not None
    assert given.roofline.calibration.source == "as given"


def test_nothing_is_predicted_for_a_model_that_does_not_fit() -> None:
    found = plan("deepseek-v3", gpus=8)
    assert found.room is None
    assert found.roofline is None
    assert "no room" in found.no_times


def test_nothing_is_predicted_beyond_a_calibration() -> None:
    line = roofline("llama-3.1-8b")
    with pytest.raises(ConfigError, match="batch"):
        line.decode_seconds(1025, 100)
    with pytest.raises(ConfigError, match="context"):
        line.decode_seconds(1, 1 << 21)
    assert plan("llama-3.1-8b", gpus=16).roofline is None


def test_one_share_can_be_given() -> None:
    found = roofline("llama-3.1-8b", mfu_prefill=0.6)
    assert found.calibration.prefill_mfu.typical == found.calibration.prefill_mfu.low == 0.6
    assert found.calibration.bandwidth == CALIBRATIONS["H100"].bandwidth
    assert "as given" in found.calibration.source


def test_chunks_beside_a_decode() -> None:
    """A budget of 2,048 holds the running request's token too."""
    assert chunks(10_000, 2048, decodes=1) == [2047] * 4 + [1812]
    assert len(chunks(100_000, 2048, decodes=1)) == 49
    assert 2048 * TOKEN_BYTES == 640 * MIB
    assert round(100_000 * TOKEN_BYTES / GIB, 1) == 30.5
    assert round(100_000 / 2048) == 49  # how much lower the activations peak: about 50 times
    with pytest.raises(ConfigError, match="budget"):
        chunks(10, 8, decodes=8)


def test_budgets_meet_their_objectives() -> None:
    line = roofline("llama-3.1-8b")
    shape = {"decodes": 32, "context": 2048}
    budget = line.largest_budget(0.030, **shape)
    assert budget is not None
    assert line.step_seconds(budget, **shape) <= 0.030 < line.step_seconds(budget + 1, **shape)
    assert line.largest_budget(0.001, **shape) is None
    least = line.smallest_budget(2.0, prompt=20_000, **shape)
    assert least is not None
    assert line.first_token_seconds(least, prompt=20_000, **shape) <= 2.0
    assert line.first_token_seconds(least - 16, prompt=20_000, **shape) > 2.0
    assert line.smallest_budget(0.01, prompt=20_000, **shape) is None


def test_tight_objectives_want_small_steps() -> None:
    line = roofline("llama-3.1-8b")
    budgets = [line.largest_budget(ms / 1000, decodes=8, context=2048) for ms in (20, 50)]
    assert budgets[0] is not None
    assert budgets[1] is not None
    assert budgets[0] < budgets[1]


def test_fetching_against_computing() -> None:
    """625 MiB over 200 Gb/s: 26 ms, where 2,000 tokens take 100 to 200 ms."""
    n_bytes = 2000 * TOKEN_BYTES
    assert n_bytes == 625 * MIB
    seconds = transfer_seconds(n_bytes, bits_per_second=200e9)
    assert round(1000 * seconds) == 26
    assert [round(ms / 1000 / seconds, 1) for ms in (100, 200)] == [3.8, 7.6]
    found = plan("llama-3.1-70b", gpus=4, lengths=fixed(2000))
    assert found.money is not None


@pytest.mark.parametrize(("gpu_tflops", "gb_per_second"), [(312, 5.86), (989, 18.57)])
def test_mooncakes_rule_for_fetching(gpu_tflops: float, gb_per_second: float) -> None:
    """B/G > 2·d·s/(gqa·(a·p·d + b·d²)), with 8 GPUs and a prefix of 8,192."""
    layers, d, prefix, gqa = 80, 8192, 8192, 8
    seconds = flops_of_prefill(prefix, layers=layers, hidden_size=d) / (8 * gpu_tflops * 1e12)
    token_bytes = 2 * layers * d // gqa * 2
    found = break_even_bytes_per_second(token_bytes, prefill_tokens_per_second=prefix / seconds)
    assert found / 1e9 == pytest.approx(gb_per_second, rel=0.002)


def test_the_attention_matrix() -> None:
    assert matrix_bytes(131_072) == 32 * GIB
    assert 64 * 80 * matrix_bytes(131_072) == 160 * (1 << 40)
    a100 = GPUS["A100-40"]
    assert round(a100.bf16_flops / 2.0e12) == 156


def test_attention_in_tiles() -> None:
    """Popular: 33M accesses against 4.3M, and d²/M of 0.0008 with the chip's 20 MB for M."""
    causal = standard_accesses(4096, 128, causal=True) - 4 * 4096 * 128
    assert causal == 2 * 4096**2 == 33_554_432
    assert round(tiled_least_bytes(4096, 128) / 1e6, 1) == 4.3
    assert round(matrix_share(128, chip_elements=20e6), 4) == 0.0008
    in_one = 192 * KIB / 2
    assert round(matrix_share(128, chip_elements=in_one), 2) == 0.17
    assert round(1 / matrix_share(128, chip_elements=in_one)) == 6
    assert tiled_accesses(4096, 128, chip_elements=in_one) < standard_accesses(4096, 128) / 10


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_catalogue_counts_dense_operations(gpu: object) -> None:
    """FP8 is twice BF16, never the four times of brochures that count sparsity."""
    found = GPUS[gpu.name]  # type: ignore[attr-defined]
    assert 1e11 < found.bandwidth_bytes_per_second < 1e13
    if found.fp8_flops is not None:
        assert found.fp8_flops / found.bf16_flops == pytest.approx(2, rel=0.02)
    if found.fp4_flops is not None and found.fp8_flops is not None:
        assert 1.9 < found.fp4_flops / found.fp8_flops < 3.2


def test_catalogue_keeps_gb_and_gib_apart() -> None:
    assert gpu_called("h100").usable_bytes == round(79.18 * GIB)
    assert gpu_called("H100").memory_bytes == 80 * GIB
    assert gpu_called("rtx 4090").usable_bytes == 24 * GB
    with pytest.raises(ConfigError, match="H100"):
        gpu_called("H1000")


def test_weights_of_four_bits_multiply_in_sixteen() -> None:
    h100 = gpu_called("H100")
    assert h100.flops("int4") == h100.flops("bf16") == h100.flops("fp8") / 2
    assert gpu_called("A100").flops("fp8") == gpu_called("A100").bf16_flops


def test_worked_example_of_prefix_caching() -> None:
    """A system prompt of 2,000 tokens and 200 more, at 1,000 requests a minute."""
    geometry = planned_card("llama-3.1-70b").geometry
    bf16 = kv_format("bf16")
    assert (2000 // 16, -(-2200 // 16), 2200 // 16) == (125, 138, 137)
    saved = geometry.sequence_bytes(2000, bf16)
    assert saved == 625 * MIB
    assert round(1000 * saved / GIB) == 610


def test_worked_example_of_two_phases() -> None:
    """Usually counted as 414,650 and 100: prefill already yields the first new token."""
    assert projections(4096, 100, cached=False) == 414_550
    assert projections(4096, 100, cached=False) + 100 == 414_650
    assert projections(4096, 100, cached=True) - 4096 == 99


@pytest.mark.parametrize(
    ("name", "kib", "gib"),
    [
        ("llama-3.1-70b", 320, 40),
        ("qwen3-8b", 144, 18),
        ("qwen3-235b-a22b", 188, 23.5),
        ("minimax-m2.5", 248, 31),
    ],
)
def test_worked_table(name: str, kib: int, gib: float) -> None:
    geometry = planned_card(name).geometry
    assert geometry.token_bytes(kv_format("bf16")) == kib * KIB
    assert geometry.sequence_bytes(131_072, kv_format("bf16")) == gib * GIB
    assert geometry.sequence_bytes(131_072, kv_format("fp8")) == gib * GIB / 2
    # INT4 weights leave K and V as they are.
    model = planned_card(name)
    assert planned(model, Ask(weights="int4")).fmt.bits == 16
    assert planned(model, Ask(kv_cache_dtype="fp8")).fmt.bits == 8


def test_llama_70b_by_length_and_without_groups() -> None:
    found = plan("llama-3.1-70b")
    lengths = [found.geometry.sequence_bytes(n, found.fmt) / GIB for n in (4096, 32_768)]
    assert lengths == [1.25, 10]
    every = with_query_heads(found.model)
    assert every.token_bytes(found.fmt) == 2_621_440
    assert every.sequence_bytes(131_072, found.fmt) == 320 * GIB
