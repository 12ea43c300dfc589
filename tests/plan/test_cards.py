"""Every card gives the bytes of its published geometry, to the byte."""

from __future__ import annotations

import pytest

from octavo.core.errors import ModelNotFound
from octavo.plan.cards import card_names, planned_card
from octavo.plan.formats import kv_format
from octavo.plan.geometry import Geometry

BF16, FP8 = kv_format("bfloat16"), kv_format("fp8")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Pure attention: bytes a token in bfloat16 and KiB in fp8.
PURE = {
    "smollm2-135m": (23_040, 11.25),
    "qwen2.5-7b": (57_344, 28),
    "qwen2.5-72b": (327_680, 160),
    "qwen3-0.6b": (114_688, 56),
    "qwen3-8b": (147_456, 72),
    "qwen3-14b": (163_840, 80),
    "qwen3-32b": (262_144, 128),
    "qwen3-30b-a3b": (98_304, 48),
    "qwen3-235b-a22b": (192_512, 94),
    "qwen3-coder-480b": (253_952, 124),
    "llama-3.1-8b": (131_072, 64),
    "llama-3.1-70b": (327_680, 160),
    "llama-3.3-70b": (327_680, 160),
    "llama-3.1-405b": (516_096, 252),
    "mistral-7b-v0.3": (131_072, 64),
    "mixtral-8x7b": (131_072, 64),
    "mixtral-8x22b": (229_376, 112),
    "mistral-nemo-12b": (163_840, 80),
    "mistral-small-3.2-24b": (163_840, 80),
    "minimax-m2.5": (253_952, 124),
    "glm-4.5-air": (188_416, 92),
    "nemotron-super-49b": (200_704, 98),
    "opt-13b": (819_200, 400),
    "llama-2-7b": (524_288, 256),
}
# MLA: bytes a token of the latents in bfloat16.
LATENT = {
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "kimi-k2": 70_272,
    "kimi-k2.5": 70_272,
    "deepseek-v2-lite": 31_104,
    "glm-5": 89_856,
    "glm-5.2": 89_856,
    "kimi-k3": 27 * KIB,
}
# Growth in KiB a token, and MiB a sequence that do not grow.
HYBRID = {
    "qwen3-next-80b": (24, 73.7),
    "qwen3.5-27b": (64, 146.8),
    "qwen3.6-27b": (64, 146.8),
    "qwen3.5-35b-a3b": (20, 61.4),
    "qwen3.5-122b-a10b": (24, 146.5),
    "qwen3.5-397b-a17b": (30, 183.2),
    "nemotron-3-nano": (6, 46.8),
    "nemotron-3-super": (8, 162.3),
    "nemotron-3-ultra": (12, 389.1),
}
# MiB of a sequence of 4k, 8k, 32k, 128k tokens.
SLIDING = {
    "gpt-oss-20b": (99, 195, 771, 3_075),
    "gpt-oss-120b": (148.5, 292.5, 1_156.5, 4_612.5),
    "gemma-3-27b": (736, 1_056, 2_976, 10_656),
    "gemma-3-12b": (576, 832, 2_368, 8_512),
    "gemma-3-4b": (196, 276, 756, 2_676),
    "gemma-4-31b": (1_120, 1_440, 3_360, 11_040),
    "gemma-4-26b-a4b": (280, 360, 840, 2_760),
    "mimo-v2-flash": (114.4, 204.4, 744.4, 2_904.4),
    "step-3.7-flash": (258, 450, 1_602, 6_210),
}


def geometry(name: str) -> Geometry:
    return planned_card(name).geometry


@pytest.mark.parametrize("name", PURE)
def test_pure_attention_to_the_byte(name: str) -> None:
    in_bf16, kib_in_fp8 = PURE[name]
    found = geometry(name)
    assert found.token_bytes(BF16) == in_bf16
    assert found.token_bytes(FP8) == kib_in_fp8 * KIB
    assert found.sequence_bytes(131_072, BF16) == 131_072 * in_bf16
    assert found.fixed_bytes(BF16) == 0


@pytest.mark.parametrize("name", LATENT)
def test_latents_to_the_byte(name: str) -> None:
    latents = [part for part in geometry(name).parts if part.name == "latent (MLA)"]
    assert sum(part.token_bytes(BF16) for part in latents) == LATENT[name]


def test_latents_in_fp8_keep_scales_and_the_rotated_key() -> None:
    assert geometry("deepseek-v3").token_bytes(FP8) == 61 * 656 == 40_016
    assert round(40_016 / KIB, 1) == 39.1
    assert geometry("deepseek-v3.2").token_bytes(FP8) == 48_068


def test_shared_indexers_keep_no_keys() -> None:
    keys = {
        name: [part.layers for part in geometry(name).parts if part.name == "index keys"]
        for name in ("glm-5", "glm-5.2", "minimax-m3")
    }
    assert keys == {"glm-5": [78], "glm-5.2": [21], "minimax-m3": [57]}
    assert geometry("minimax-m3").token_bytes(BF16) == 122_880 + 57 * 128 * 2


@pytest.mark.parametrize("name", HYBRID)
def test_hybrids_grow_slowly_and_hold_a_state(name: str) -> None:
    growth_kib, fixed_mib = HYBRID[name]
    found = geometry(name)
    assert found.token_bytes(BF16) == growth_kib * KIB
    assert found.fixed_bytes(BF16) / MIB == pytest.approx(fixed_mib, abs=0.06)
    longer = found.sequence_bytes(5000, BF16) - found.sequence_bytes(4000, BF16)
    assert longer == 1000 * growth_kib * KIB


@pytest.mark.parametrize("name", SLIDING)
def test_windows_to_the_printed_digit(name: str) -> None:
    found = [geometry(name).sequence_bytes(n << 10, BF16) / MIB for n in (4, 8, 32, 128)]
    assert [round(one, 1) for one in found] == list(SLIDING[name])


def test_windows_save() -> None:
    full = geometry("gemma-3-27b").every_layer_full()
    assert full.sequence_bytes(131_072, BF16) == 63_488 * MIB


def test_layers_that_share_keep_nothing() -> None:
    found = geometry("gemma-3n-e4b")
    assert [found.sequence_bytes(n, BF16) // MIB for n in (4096, 32_768)] == [48, 272]


def test_compressed_sparse_attention() -> None:
    """The compressor's own state, which makes the last tenth, is not counted."""
    pro, flash = geometry("deepseek-v4-pro"), geometry("deepseek-v4-flash")
    assert pro.sequence_bytes(131_072, FP8) / MIB == pytest.approx(559.4, abs=0.1)
    assert pro.sequence_bytes(1_048_576, FP8) / MIB == pytest.approx(4447.9, abs=0.1)
    assert flash.sequence_bytes(131_072, FP8) / MIB == pytest.approx(390.75, abs=0.1)


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [
        ("gemma-3-27b", 131_072, 10.41),
        ("qwen3-0.6b", 40_960, 4.38),
        ("deepseek-v3.1", 163_840, 10.72),
        ("kimi-k2.5", 262_144, 17.16),
    ],
)
def test_totals_that_others_measured(name: str, tokens: int, gib: float) -> None:
    assert round(geometry(name).sequence_bytes(tokens, BF16) / GIB, 2) == pytest.approx(
        gib, abs=0.0101
    )


def test_state_of_four_sequences_as_llama_cpp_logs_it() -> None:
    """16,384 MiB of K and V; 598.5 MiB of state with a convolution in float32, not bfloat16."""
    found = geometry("qwen3.6-27b")
    assert found.sequence_bytes(262_144, BF16) - found.fixed_bytes(BF16) == 16_384 * MIB
    conv_bytes = 48 * (2 * 16 * 128 + 48 * 128) * 3 * 2
    assert 4 * (found.fixed_bytes(BF16) + conv_bytes) == 598.5 * MIB


def test_layers_that_guess_ahead_count_when_they_run() -> None:
    plain, guessing = planned_card("glm-5"), planned_card("glm-5", mtp=True)
    latents = guessing.geometry.parts[0]
    assert (plain.layers, guessing.layers, latents.layers) == (78, 79, 79)
    assert round(latents.sequence_bytes(202_752, BF16) / GIB, 2) == 17.18


def test_every_card_reads() -> None:
    assert len(card_names()) >= 45
    for name in card_names():
        model = planned_card(name)
        assert model.geometry.sequence_bytes(4096, BF16) > 0
        assert model.max_position


def test_unknown_cards_get_a_hint() -> None:
    with pytest.raises(ModelNotFound, match=r"llama-3\.1-8b"):
        planned_card("llama-3.1-8")


def test_counted_parameters_are_exact() -> None:
    known = {
        "smollm2-135m": 134_515_008,
        "qwen2.5-7b": 7_615_616_512,
        "qwen3-0.6b": 596_049_920,
        "qwen3-8b": 8_190_735_360,
        "llama-3.1-8b": 8_030_261_248,
        "llama-3.1-70b": 70_553_706_496,
        "mistral-7b": 7_248_023_552,
        "mixtral-8x7b": 46_702_792_704,
        "qwen3-30b-a3b": 30_532_122_624,
        "gemma-3-4b": 3_880_263_168,
    }
    for name, total in known.items():
        parameters = planned_card(name).parameters
        assert parameters is not None
        assert parameters.total == total, name
