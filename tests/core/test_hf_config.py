"""config.json to ModelConfig: fields of real families, both RoPE spellings, refusals by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.errors import ModelFileError
from octavo.core.hf_config import from_hf
from octavo.core.model_config import Llama3Scaling, ModelConfig, RopeConfig

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "rope_scaling": None,
    "rope_interleaved": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MISTRAL = {**LLAMA, "architectures": ["MistralForCausalLM"], "sliding_window": None}
SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_a_small_llama_is_read_field_by_field() -> None:
    assert from_hf(LLAMA) == ModelConfig(
        family="llama",
        n_layers=30,
        hidden_size=576,
        n_heads=9,
        kv_heads=3,
        head_dim=64,
        intermediate_size=1536,
        vocab_size=49152,
        norm_eps=1e-5,
        rope=RopeConfig(theta=100000.0, dim=64),
        max_position=8192,
        tie_embeddings=True,
        dtype="bfloat16",
        bos_token_ids=(1,),
        eos_token_ids=(2,),
    )


def test_absent_fields_take_the_defaults_of_the_architecture() -> None:
    drop = (
        "num_key_value_heads",
        "rope_theta",
        "rms_norm_eps",
        "tie_word_embeddings",
        "torch_dtype",
    )
    config = from_hf({k: v for k, v in LLAMA.items() if k not in drop})
    assert config.kv_heads == 9
    assert config.rope.theta == 10000.0
    assert config.norm_eps == 1e-6
    assert not config.tie_embeddings
    assert config.dtype == "float32"


def test_biases_and_explicit_head_dim() -> None:
    config = from_hf({**LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 128})
    assert config.attention_bias
    assert config.mlp_bias
    assert config.head_dim == config.rope.dim == 128


def test_mistral_with_and_without_a_window() -> None:
    config = from_hf(MISTRAL)
    assert (config.family, config.window, config.sliding_layers) == ("mistral", None, ())
    absent = {k: v for k, v in MISTRAL.items() if k != "sliding_window"}
    for raw, window in ((absent, 4096), ({**MISTRAL, "sliding_window": 64}, 64)):
        config = from_hf(raw)
        assert (config.window, config.sliding_layers) == (window, tuple(range(30)))
    assert from_hf({**MISTRAL, "head_dim": 96}).head_dim == 96


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_scaling": SCALING, "rope_theta": 5e5},
        {"rope_parameters": {**SCALING, "rope_theta": 5e5}, "rope_theta": None},
        {"rope_parameters": SCALING, "rope_theta": 5e5},
    ],
)
def test_llama3_scaling_in_every_spelling(spelling: dict[str, Any]) -> None:
    assert from_hf({**LLAMA, **spelling}).rope == RopeConfig(
        theta=5e5,
        dim=64,
        scaling=Llama3Scaling(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
        ),
    )


def test_default_rope_parameters() -> None:
    nested = {"rope_type": "default", "rope_theta": 7e5}
    config = from_hf({**LLAMA, "rope_parameters": nested, "rope_theta": None})
    assert config.rope == RopeConfig(theta=7e5, dim=64)


@pytest.mark.parametrize("family", ["LlamaConfig", "MistralConfig"])
def test_what_transformers_writes_is_read(family: str) -> None:
    import transformers

    sizes = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    made = getattr(transformers, family)(**sizes, rope_theta=2e4)
    made.sliding_window = None
    raw = {**made.to_dict(), "architectures": [family.replace("Config", "ForCausalLM")]}
    config = from_hf(raw)
    assert config.rope.theta == made.rope_parameters["rope_theta"]
    assert config.n_layers == made.num_hidden_layers
    assert config.norm_eps == made.rms_norm_eps


def test_end_ids_come_from_generation_config_first() -> None:
    assert from_hf(LLAMA, {"eos_token_id": [7, 8, 7]}).eos_token_ids == (7, 8)
    assert from_hf(LLAMA, {"eos_token_id": None}).eos_token_ids == (2,)
    assert from_hf(LLAMA, {"temperature": 0.6}).eos_token_ids == (2,)
    assert from_hf({**LLAMA, "eos_token_id": [3, 4]}).eos_token_ids == (3, 4)
    assert from_hf({**LLAMA, "eos_token_id": None}).eos_token_ids == ()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("architectures", {"architectures": ["Qwen9ForCausalLM"]}, "LlamaForCausalLM, Mistral"),
    ("architectures", {"architectures": None}, "list of one name"),
    ("architectures", {"architectures": [["LlamaForCausalLM"]]}, "list of one name"),
    ("quantization_config", {"quantization_config": {"bits": 4}}, "must be absent"),
    ("hidden_act", {"hidden_act": "gelu"}, "silu"),
    ("rope_interleaved", {"rope_interleaved": True}, "False"),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5}, "1.0"),
    ("sliding_window", {"sliding_window": 4096}, "window"),
    ("layer_types", {"layer_types": ["full_attention"] * 29}, "each of 30 layers"),
    ("layer_types", {"layer_types": ["full_attention"] * 29 + ["sliding_attention"]}, "only hold"),
    ("layer_types", {"layer_types": ["linear_attention"] * 30}, "it has 'linear_attention'"),
    ("layer_types", {"layer_types": [None] * 30}, "only hold"),
    ("num_key_value_heads", {"num_key_value_heads": 2}, "must divide"),
    ("hidden_size", {"hidden_size": None}, "missing"),
    ("hidden_size", {"hidden_size": "576"}, "whole number"),
    ("hidden_size", {"hidden_size": 577}, "multiple"),
    ("hidden_size", {"hidden_size": 1 << 40}, "whole number"),
    ("hidden_size", {"hidden_size": 576.0}, "whole number"),
    ("head_dim", {"head_dim": 63}, "even"),
    ("num_hidden_layers", {"num_hidden_layers": 0}, "whole number"),
    ("num_hidden_layers", {"num_hidden_layers": True}, "whole number"),
    ("num_attention_heads", {"num_attention_heads": -9}, "whole number"),
    ("vocab_size", {"vocab_size": 10**4000}, "whole number"),
    ("max_position_embeddings", {"max_position_embeddings": 0}, "whole number"),
    ("rms_norm_eps", {"rms_norm_eps": float("nan")}, "finite"),
    ("rms_norm_eps", {"rms_norm_eps": 0.0}, "finite"),
    ("rope_theta", {"rope_theta": float("inf")}, "finite"),
    ("rope_theta", {"rope_theta": 10**400}, "finite"),
    ("tie_word_embeddings", {"tie_word_embeddings": 1}, "true or false"),
    ("torch_dtype", {"torch_dtype": "float8_e4m3fn"}, "float32, bfloat16, float16"),
    ("eos_token_id", {"eos_token_id": 49152}, "token id"),
    ("eos_token_id", {"eos_token_id": [1, "2"]}, "token id"),
    ("rope_scaling", {"rope_scaling": [1]}, "object"),
    ("type", {"rope_scaling": {"type": "longrope", "factor": 2.0}}, "default, linear, dynamic"),
    ("rope_type", {"rope_scaling": {**SCALING, "rope_type": "su"}}, "yarn, llama3, not 'su'"),
    ("rope_type", {"rope_parameters": {**SCALING, "rope_type": "mrope"}}, "yarn, llama3"),
    ("partial_rotary_factor", {"rope_scaling": {"partial_rotary_factor": 0.5}}, "1.0"),
    ("full_attention", {"rope_parameters": {"full_attention": {}}}, "one rotary embedding"),
    ("factor", {"rope_scaling": {"type": "linear"}}, "missing"),
    ("beta_fast", {"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 0.5}}, "above"),
    ("factor", {"rope_scaling": {**SCALING, "factor": None}}, "missing"),
    ("high_freq_factor", {"rope_scaling": {**SCALING, "high_freq_factor": 1.0}}, "above"),
]


@pytest.mark.parametrize(("field", "change", "message"), REFUSED)
def test_refusals_name_the_field(field: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        from_hf({**LLAMA, **change})
    assert caught.value.param == field
    assert field in caught.value.message


def test_mistral_refuses_biases() -> None:
    with pytest.raises(ModelFileError, match="attention_bias"):
        from_hf({**MISTRAL, "attention_bias": True})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(changes=st.dictionaries(st.sampled_from([*LLAMA, "head_dim", "layer_types"]), JUNK))
def test_junk_values_parse_or_raise_model_file_error(changes: dict[str, Any]) -> None:
    try:
        config = from_hf({**LLAMA, **changes})
    except ModelFileError:
        return
    assert config.n_heads % config.kv_heads == 0
    assert all(0 <= i < config.vocab_size for i in config.eos_token_ids)
