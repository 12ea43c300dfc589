"""GGUF metadata of every architecture: what is read, what follows from it, refusals by key."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.errors import ModelFileError
from octavo.core.gguf_config import FAMILIES, from_gguf
from octavo.core.model_config import LinearScaling, ModelConfig, RopeConfig


def metadata(arch: str, **changes: Any) -> dict[str, Any]:
    """Keys without prefix get `arch`'s; None leaves a key out."""
    keys: dict[str, Any] = {
        "block_count": 12,
        "context_length": 8192,
        "embedding_length": 512,
        "feed_forward_length": 1024,
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "vocab_size": 1000,
    }
    if arch.startswith("gemma"):
        keys["attention.sliding_window"] = 512
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    found = {f"{arch}.{name}": value for name, value in keys.items() if value is not None}
    return {"general.architecture": arch, **found}


def read(arch: str, *tensor_names: str, **changes: Any) -> ModelConfig:
    return from_gguf(metadata(arch, **changes), tensor_names=tensor_names)


@pytest.mark.parametrize("arch", FAMILIES)
def test_every_architecture_is_read_from_plain_keys(arch: str) -> None:
    config = read(arch)
    assert config.family == arch
    assert config.rope.theta == 1e6
    assert config.norm_offset == 0.0
    assert config.tie_embeddings


@pytest.mark.parametrize("arch", FAMILIES)
def test_linear_scaling_with_and_without_its_name(arch: str) -> None:
    scaled = RopeConfig(theta=1e6, dim=64, scaling=LinearScaling(factor=8.0))
    assert read(arch, rope__scaling__factor=8.0).rope == scaled
    named = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    assert read(arch, **named).rope == scaled
    assert read(arch, **{**named, "rope__scaling__type": "none"}).rope.scaling is None


def test_qwen2_biases_come_from_the_directory() -> None:
    assert read("qwen2", "blk.0.attn_q.bias").attention_bias
    assert not read("qwen3").attention_bias


def test_phi3_turns_a_part_and_may_have_a_window() -> None:
    config = read("phi3", rope__dimension_count=48, attention__sliding_window=2047)
    assert config.rope.dim == 48
    assert (config.window, config.sliding_layers) == (2047, tuple(range(12)))
    assert read("phi3", attention__sliding_window=0).window is None


def test_gemma2() -> None:
    config = read("gemma2", attn_logit_softcapping=20.0)
    assert (config.window, config.sliding_layers) == (512, (0, 2, 4, 6, 8, 10))
    assert (config.attention_softcap, config.logit_softcap) == (20.0, 30.0)
    assert config.attention_scale is None
    assert read("gemma2", block_count=46).attention_scale == 1 / 8  # (512 / 8) ** -0.5


def test_gemma3() -> None:
    config = read("gemma3", rope__scaling__factor=8.0)
    assert config.sliding_layers == (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)
    assert config.local_rope == RopeConfig(theta=10000.0, dim=64)
    assert (config.attention_softcap, config.logit_softcap) == (None, None)
    assert read("gemma3", attention__sliding_window_pattern=12).sliding_layers == tuple(range(11))
    assert read("gemma3", rope__freq_base_swa=2e4).local_rope == RopeConfig(theta=2e4, dim=64)
    large = read("gemma3", block_count=62, embedding_length=1344)
    assert large.attention_scale == pytest.approx(168**-0.5)


REFUSED: list[tuple[str, str, Any, str]] = [
    ("qwen2", "attention.sliding_window", 4096, "0"),
    ("qwen3", "attention.sliding_window", 4096, "0"),
    ("qwen3", "rope.dimension_count", 32, "64"),
    ("qwen3", "rope.scaling.type", "yarn", "none, linear"),
    ("qwen2", "attn_logit_softcapping", 50.0, "does not cap"),
    ("phi3", "rope.dimension_count", 31, "even"),
    ("phi3", "rope.dimension_count", 128, "1 to 64"),
    ("phi3", "rope.scaling.type", "longrope", "none, linear"),
    ("gemma2", "attention.sliding_window", None, "missing"),
    ("gemma2", "attention.scale", 0.1, "scaled"),
    ("gemma3", "attention.sliding_window", 0, "whole number"),
    ("gemma3", "attention.sliding_window_pattern", [True, False], "whole number"),
    ("gemma3", "attn_logit_softcapping", 50.0, "does not cap"),
    ("gemma3", "rope.freq_base", None, "missing"),
    ("gemma3", "expert_count", 8, "0"),
]


@pytest.mark.parametrize(("arch", "key", "value", "message"), REFUSED)
def test_refusals_name_the_key(arch: str, key: str, value: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        read(arch, **{key.replace(".", "__"): value})
    assert caught.value.param == f"{arch}.{key}"


def test_longrope_is_refused_by_its_tensors() -> None:
    with pytest.raises(ModelFileError, match="longrope"):
        read("phi3", "rope_factors_long.weight")
