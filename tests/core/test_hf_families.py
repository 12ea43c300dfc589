"""config.json of every family: what transformers writes, what older files say, refusals by name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.errors import ModelFileError
from octavo.core.hf_config import FAMILIES, from_hf
from octavo.core.model_config import LinearScaling, LongropeScaling, ModelConfig, RopeConfig

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 8192,
}
QWEN2 = {**BASE, "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu"}
QWEN3 = {**QWEN2, "architectures": ["Qwen3ForCausalLM"]}
LONGROPE: dict[str, Any] = {
    "type": "su",
    "short_factor": [1.0] * 8,
    "long_factor": [2] * 8,
    "original_max_position_embeddings": 2048,
}
PHI3 = {**BASE, "architectures": ["Phi3ForCausalLM"], "sliding_window": 2047}
# The older spelling of Gemma's files: both names of the activation, no list of layers.
GEMMA2 = {
    **BASE,
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
    "query_pre_attn_scalar": 144,
}
GEMMA3 = {
    **BASE,
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 512,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 256,
    "rope_theta": 1e6,
    "rope_local_base_freq": 2e4,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}


def read(raw: dict[str, Any], **changes: Any) -> ModelConfig:
    return from_hf({**raw, **changes})


@pytest.mark.parametrize("architecture", FAMILIES)
def test_defaults_are_those_of_transformers(architecture: str) -> None:
    """A config made by transformers' class, written out, and a bare one without the defaults."""
    import transformers

    name = architecture.removesuffix("ForCausalLM")
    made = getattr(transformers, f"{'Gemma3Text' if name == 'Gemma3' else name}Config")(
        num_key_value_heads=2, num_attention_heads=4, hidden_size=64
    )
    config = from_hf({**made.to_dict(), "architectures": [architecture]})
    assert config.n_layers == made.num_hidden_layers
    assert config.norm_eps == made.rms_norm_eps
    assert config.tie_embeddings == made.tie_word_embeddings
    assert config.head_dim == (getattr(made, "head_dim", None) or 16)
    kinds = getattr(made, "layer_types", None)
    if kinds is not None:
        wanted = [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]
        assert list(config.sliding_layers) == wanted
    elif made.to_dict().get("sliding_window"):
        assert config.sliding_layers == tuple(range(config.n_layers))
    full = made.rope_parameters.get("full_attention", made.rope_parameters)
    assert config.rope.theta == full["rope_theta"]
    if name == "Gemma3":
        local = made.rope_parameters["sliding_attention"]
        assert config.local_rope == RopeConfig(theta=local["rope_theta"], dim=256)


def test_qwen2_has_biases_of_q_k_and_v_whatever_the_file_says() -> None:
    config = read(QWEN2)
    assert config.attention_bias
    assert (config.window, config.sliding_layers) == (None, ())


def test_qwen_windows_start_at_max_window_layers() -> None:
    assert read(QWEN2, sliding_window=512, use_sliding_window=False).sliding_layers == ()
    windowed = {"use_sliding_window": True, "sliding_window": 512}
    config = read(QWEN3, **windowed, max_window_layers=4)
    assert (config.window, config.sliding_layers) == (512, (4, 5))
    assert read(QWEN3, **windowed, max_window_layers=0).sliding_layers == tuple(range(6))
    assert read(QWEN3, **windowed).window is None  # 28 full layers by default
    kinds = ["sliding_attention", *["full_attention"] * 5]
    assert read(QWEN2, **windowed, layer_types=kinds).sliding_layers == (0,)


def test_qwen3_has_heads_of_its_own_size() -> None:
    assert read(QWEN3).head_dim == 128
    assert read(QWEN3, head_dim=96).head_dim == 96


def test_phi3() -> None:
    config = read(PHI3, partial_rotary_factor=0.5)
    assert (config.window, config.sliding_layers) == (2047, tuple(range(6)))
    assert (config.rope.dim, config.head_dim) == (8, 16)
    assert config.norm_eps == 1e-5
    nested = {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.75}
    assert read(PHI3, rope_parameters=nested).rope == RopeConfig(theta=5e5, dim=12)
    assert read(PHI3, sliding_window=None).window is None


def test_phi3_longrope_in_the_spelling_of_its_first_files() -> None:
    rope = read(PHI3, rope_scaling=LONGROPE).rope
    assert rope.scaling == LongropeScaling(
        short_factors=(1.0,) * 8,
        long_factors=(2.0,) * 8,
        original_max_position=2048,
        attention_factor=math.sqrt(1 + math.log(4) / math.log(2048)),
    )
    assert rope.at_length(2048) == rope
    assert rope.at_length(2049).scaling == replace(rope.scaling, is_long=True)
    outside = read(PHI3, rope_scaling=LONGROPE, original_max_position_embeddings=8192)
    assert outside.rope.scaling.original_max_position == 8192
    assert outside.rope.scaling.attention_factor == 1.0


def test_gemma2() -> None:
    config = read(GEMMA2)
    assert (config.window, config.sliding_layers) == (4096, (0, 2, 4))
    assert config.head_dim == 256
    assert config.attention_scale == pytest.approx(1 / 12)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)
    assert config.norm_offset == 1.0
    assert config.tie_embeddings
    assert read(GEMMA2, attn_logit_softcapping=None).attention_softcap is None
    assert read(GEMMA2, final_logit_softcapping=7.0).logit_softcap == 7.0


def test_gemma3_in_the_older_spelling() -> None:
    config = read(GEMMA3)
    assert (config.window, config.sliding_layers) == (512, (0, 1, 3, 4))
    assert config.rope == RopeConfig(theta=1e6, dim=256, scaling=LinearScaling(factor=8.0))
    assert config.local_rope == RopeConfig(theta=2e4, dim=256)
    assert (config.attention_softcap, config.logit_softcap) == (None, None)
    kinds = ["full_attention"] * 6
    config = read(GEMMA3, layer_types=kinds)
    assert (config.window, config.sliding_layers, config.local_rope) == (None, (), None)


REFUSED: list[tuple[dict[str, Any], str, dict[str, Any], str]] = [
    (QWEN2, "num_key_value_heads", {"num_key_value_heads": 3}, "must divide"),
    (QWEN2, "sliding_window", {"use_sliding_window": True, "max_window_layers": 1}, "missing"),
    (QWEN2, "sliding_window", {"layer_types": ["sliding_attention"] * 6}, "missing"),
    (QWEN2, "use_sliding_window", {"use_sliding_window": "yes"}, "true or false"),
    (QWEN3, "hidden_act", {"hidden_act": "gelu"}, "silu"),
    (QWEN3, "mlp_bias", {"mlp_bias": True}, "False"),
    (PHI3, "rope_type", {"rope_scaling": {"rope_type": "yarn"}}, "must be one of default"),
    (QWEN2, "type", {"rope_scaling": LONGROPE}, "not 'su'"),
    *(
        (PHI3, field, {"rope_scaling": {**LONGROPE, field: value}}, message)
        for field, value, message in (
            ("short_factor", [1.0] * 7, "a list of 8 numbers"),
            ("short_factor", None, "missing"),
            ("long_factor", [1.0] * 7 + [0], "above zero"),
            ("long_factor", [1.0] * 7 + [float("nan")], "above zero"),
            ("long_factor", [1.0] * 7 + [True], "above zero"),
            ("long_factor", {"0": 1.0}, "a list of 8"),
            ("short_mscale", 1.1, "absent"),
            ("attention_factor", 0, "above zero"),
            ("original_max_position_embeddings", None, "missing"),
            ("original_max_position_embeddings", 1, "above 1"),
        )
    ),
    (PHI3, "partial_rotary_factor", {"partial_rotary_factor": 0.35}, "even part of the head's 16"),
    (PHI3, "partial_rotary_factor", {"partial_rotary_factor": 1e9}, "even part"),
    (PHI3, "attention_bias", {"attention_bias": True}, "False"),
    (PHI3, "layer_types", {"layer_types": ["full_attention"] * 6}, '"sliding_attention"'),
    (GEMMA2, "hidden_activation", {"hidden_activation": "gelu"}, "gelu_pytorch_tanh"),
    (GEMMA2, "sliding_window", {"sliding_window": None}, "missing"),
    (GEMMA2, "layer_types", {"layer_types": ["chunked_attention"] * 6}, "'chunked_attention'"),
    (GEMMA2, "query_pre_attn_scalar", {"query_pre_attn_scalar": 0}, "above zero"),
    (GEMMA2, "attn_logit_softcapping", {"attn_logit_softcapping": -1.0}, "above zero"),
    (GEMMA2, "use_bidirectional_attention", {"use_bidirectional_attention": True}, "False"),
    (GEMMA3, "attn_logit_softcapping", {"attn_logit_softcapping": 50.0}, "does not cap"),
    (GEMMA3, "rope_type", {"rope_scaling": {"rope_type": "mrope"}}, "must be one of"),
    (GEMMA3, "sliding_window_pattern", {"sliding_window_pattern": 0}, "whole number"),
    (GEMMA3, "rope_parameters", {"rope_parameters": 3}, "object"),
]


@pytest.mark.parametrize(("raw", "field", "change", "message"), REFUSED)
def test_refusals_name_the_field(
    raw: dict[str, Any], field: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        read(raw, **change)
    assert caught.value.param == field
    assert field in caught.value.message


def test_unknown_architectures_are_refused_with_those_known() -> None:
    with pytest.raises(ModelFileError) as caught:
        read(BASE, architectures=["Gemma3ForConditionalGeneration"])
    for known in FAMILIES:
        assert known in caught.value.message


def test_kv_heads_may_be_left_out_only_where_the_default_is_certain() -> None:
    without = {name: value for name, value in QWEN2.items() if name != "num_key_value_heads"}
    with pytest.raises(ModelFileError, match="num_key_value_heads is missing"):
        from_hf(without)
    assert read(QWEN2, num_key_value_heads=None).kv_heads == 4
    assert read(PHI3, num_key_value_heads=None).kv_heads == 4


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rope_type", "type", "factor", "full_attention", "rope_theta"]),
            inner | st.sampled_from(["yarn", "linear", "llama3", "dynamic"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    raw=st.sampled_from([QWEN2, QWEN3, PHI3, GEMMA2, GEMMA3]),
    changes=st.dictionaries(
        st.sampled_from([*GEMMA3, "layer_types", "rope_parameters", "partial_rotary_factor"]), JUNK
    ),
)
def test_junk_values_parse_or_raise_model_file_error(
    raw: dict[str, Any], changes: dict[str, Any]
) -> None:
    try:
        config = from_hf({**raw, **changes})
    except ModelFileError:
        return
    assert all(0 <= layer < config.n_layers for layer in config.sliding_layers)
    assert (config.window is None) == (not config.sliding_layers)
