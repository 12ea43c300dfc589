"""Rotary tables against transformers' own, and the rotation against complex multiplication."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from octavo.compute.rope import MOST_POSITIONS, RopeTable, inverse_frequencies
from octavo.core.errors import ConfigError, ModelFileError
from octavo.core.hf_config import from_hf
from octavo.core.model_config import LinearScaling, Llama3Scaling, RopeConfig, YarnScaling
from tests.families import LONGROPE

PLAIN = RopeConfig(theta=10000.0, dim=16)
SCALING = Llama3Scaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=64
)
SCALED = dataclasses.replace(PLAIN, scaling=SCALING)


def reference(rope: dict[str, object], dim: int) -> torch.Tensor:
    """transformers' inverse frequencies for the same parameters."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=dim * 2,
        num_attention_heads=2,
        max_position_embeddings=512,
        rope_parameters=rope,
    )
    return LlamaRotaryEmbedding(config).inv_freq


def test_frequencies_match_transformers() -> None:
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    torch.testing.assert_close(inverse_frequencies(PLAIN), reference(plain, 16))
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    scaled = inverse_frequencies(SCALED)
    torch.testing.assert_close(scaled, reference(llama3, 16), rtol=1e-5, atol=1e-9)
    assert not torch.allclose(scaled, inverse_frequencies(PLAIN))


YARN: dict[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, object]] = {
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 5000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": YARN,
    "yarn_of_all_positions": {**YARN, "original_max_position_embeddings": None},
    "yarn_ramp": {**YARN, "beta_fast": 8, "beta_slow": 2, "truncate": False},
    "yarn_given_scale": {**YARN, "attention_factor": 0.8},
    "yarn_two_scales": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn_one_scale": {**YARN, "mscale": 0.7},
    "yarn_that_shrinks": {**YARN, "factor": 0.5},
}


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_tables_match_transformers(variant: str, spelling: str) -> None:
    """From config.json to cosines and sines, over every position of the model."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {name: value for name, value in VARIANTS[variant].items() if value is not None}
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 512}
    reference = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=dict(rope)))
    positions = torch.arange(512)
    cos, sin = reference(torch.zeros(1), positions[None])
    raw: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 8,
        **sizes,
        spelling: rope,
    }
    if spelling == "rope_scaling":
        raw["rope_theta"] = rope.pop("rope_theta")
    config = from_hf(raw)
    ours = RopeTable(config.rope, 512).at(positions)
    torch.testing.assert_close(ours.cos[:, 0], cos[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.sin[:, 0, 32:], sin[0, :, 32:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.sin[:, 0, :32], -sin[0, :, :32], rtol=1e-4, atol=1e-4)
    longest = 512 if "yarn" not in variant else max(512, int(rope["factor"] * 64))
    assert config.max_position == (2048 if variant == "yarn_of_all_positions" else longest)


def test_yarn_serves_the_length_it_stretches_to() -> None:
    raw = {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 8,
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    }
    assert from_hf(raw).max_position == 131072


def test_factors_that_spell_the_scaling_out_give_the_same() -> None:
    plain, scaled = inverse_frequencies(PLAIN), inverse_frequencies(SCALED)
    factors = dataclasses.replace(PLAIN, freq_factors=tuple((plain / scaled).tolist()))
    torch.testing.assert_close(inverse_frequencies(factors), scaled)


@pytest.mark.parametrize("head_dim", [16, 24])
def test_rotation_turns_pairs_and_passes_the_rest(head_dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, head_dim)
    positions = torch.tensor([0, 1, 7, 300, 511])
    out = RopeTable(PLAIN, 512).at(positions).apply(x)
    angles = torch.outer(positions.double(), inverse_frequencies(PLAIN).double())[:, None]
    pairs = torch.complex(x[..., :8].double(), x[..., 8:16].double())
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(out[..., :8].double(), turned.real, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out[..., 8:16].double(), turned.imag, atol=1e-4, rtol=1e-4)
    assert torch.equal(out[..., 16:], x[..., 16:])
    assert torch.equal(out[0], x[0])


def test_low_precision_is_turned_in_float32() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 2, 16).bfloat16()
    rotation = RopeTable(PLAIN, 512).at(torch.tensor([3, 100, 400, 511]))
    out = rotation.apply(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, rotation.apply(x.float()).bfloat16())


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 15},
        {"dim": 0},
        {"theta": 0.0},
        {"theta": math.nan},
        {"scaling": dataclasses.replace(SCALING, high_freq_factor=1.0)},
        {"scaling": dataclasses.replace(SCALING, factor=math.inf)},
        {"scaling": LinearScaling(factor=0.0)},
        {"scaling": YarnScaling(factor=2.0, original_max_position=64, attention_factor=math.nan)},
        {
            "theta": 1.0,
            "scaling": YarnScaling(factor=2.0, original_max_position=64, attention_factor=1.0),
        },
        {"freq_factors": (1.0,) * 7},
        {"freq_factors": (0.0,) * 8},
        {"scaling": SCALING, "freq_factors": (1.0,) * 8},
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ModelFileError, match="rope"):
        inverse_frequencies(dataclasses.replace(PLAIN, **changes))


@pytest.mark.parametrize("n_positions", [0, MOST_POSITIONS + 1])
def test_table_size_is_bounded(n_positions: int) -> None:
    with pytest.raises(ConfigError, match="max_model_len must be in"):
        RopeTable(PLAIN, n_positions)


@pytest.mark.parametrize("n_positions", [64, 65])
@pytest.mark.parametrize("attention_factor", [None, 1.3])
def test_longrope_tables_match_transformers(
    n_positions: int, attention_factor: float | None
) -> None:
    from transformers import Phi3Config
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    rope = {**LONGROPE["rope_parameters"], "attention_factor": attention_factor}
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
    fields = {**sizes, "original_max_position_embeddings": 64}
    reference = Phi3RotaryEmbedding(Phi3Config(**fields, rope_parameters=dict(rope)))
    positions = torch.arange(n_positions)
    cos, sin = reference(torch.zeros(1), positions[None])
    raw = {
        "architectures": ["Phi3ForCausalLM"],
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 8,
        **fields,
        "rope_parameters": rope,
    }
    ours = RopeTable(from_hf(raw).rope, n_positions).at(positions)
    torch.testing.assert_close(ours.cos[:, 0], cos[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.sin[:, 0, 4:], sin[0, :, 4:], rtol=1e-4, atol=1e-4)
