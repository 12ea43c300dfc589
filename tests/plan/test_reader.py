"""The order in which config fields are looked up, and the traps in it."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.errors import ConfigError, ModelFileError
from octavo.core.gguf_header import read_header
from octavo.core.hf_config import from_hf as engine_reading
from octavo.plan.cards import card_config, card_names
from octavo.plan.formats import KV_FORMATS, kv_format
from octavo.plan.geometry import Attention, Geometry, Recurrent
from octavo.plan.gguf_model import from_gguf_header
from octavo.plan.hf_model import from_hf, text_part
from octavo.plan.model import PlannedModel
from tests.families import FAMILIES, GGUF_FAMILIES, tiny_family, write_family_gguf

BF16 = kv_format("bf16")
PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}


def read(quantization: dict[str, Any] | None = None, mtp: bool = False, **fields: Any) -> Geometry:
    return model(quantization, mtp, **fields).geometry


def model(
    quantization: dict[str, Any] | None = None, mtp: bool = False, **fields: Any
) -> PlannedModel:
    config = {name: value for name, value in {**PLAIN, **fields}.items() if value != "absent"}
    return from_hf(config, "m", source="test", quantization=quantization, mtp=mtp)


def attention(geometry: Geometry) -> list[tuple[str, int, int, int, int]]:
    return [
        (part.name, part.layers, part.kv_heads, part.key_dim, part.value_dim)
        for part in geometry.parts
        if isinstance(part, Attention)
    ]


@pytest.mark.parametrize("wrapper", ["text_config", "llm_config", "language_config"])
def test_the_text_part_is_unwrapped(wrapper: str) -> None:
    inner = {wrapper: {**PLAIN, "vision": 1}}
    for config in (inner, {"llm_config": inner}):
        found = from_hf(config, "m", source="test").geometry
        assert attention(found) == [("full attention", 4, 2, 64, 64)]


@pytest.mark.parametrize("name", ["n_layer", "n_layers", "num_layers"])
def test_spellings_of_the_layer_count(name: str) -> None:
    found = read(num_hidden_layers="absent", **{name: 6})
    assert attention(found)[0][1] == 6
    assert attention(read(**{name: 6}))[0][1] == 4  # num_hidden_layers comes first


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"num_key_value_heads": 4}, 4),
        ({"num_key_value_heads": None, "n_head_kv": 4}, 4),
        ({"num_key_value_heads": "absent", "num_kv_heads": 1}, 1),
        ({"num_key_value_heads": None, "multi_query": True}, 1),
        (
            {
                "num_key_value_heads": None,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            2,
        ),
        ({"num_key_value_heads": None, "multi_query": False}, 8),
        ({"num_key_value_heads": "absent"}, 8),
    ],
)
def test_spellings_of_the_kv_heads(fields: dict[str, Any], kv_heads: int) -> None:
    assert attention(read(**fields)) == [("full attention", 4, kv_heads, 64, 64)]


def test_kv_heads_of_each_layer() -> None:
    found = read(num_key_value_heads=[0, 1, 2, 2])
    assert attention(found) == [
        ("full attention", 1, 1, 64, 64),
        ("full attention", 2, 2, 64, 64),
    ]
    with pytest.raises(ModelFileError, match="num_key_value_heads"):
        read(num_key_value_heads=[1, 2])


@pytest.mark.parametrize(
    ("fields", "dim"),
    [
        ({"head_dim": 96}, 96),
        ({"head_dim": None, "attention_head_dim": 80}, 80),
        ({"kv_channels": 72}, 72),
        ({}, 64),
    ],
)
def test_spellings_of_the_head_dim(fields: dict[str, Any], dim: int) -> None:
    assert attention(read(**fields))[0][3:] == (dim, dim)


def test_a_head_dim_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ModelFileError, match="hidden_size"):
        read(hidden_size=500)


def test_values_may_be_narrower_than_keys() -> None:
    found = read(head_dim=192, v_head_dim=128)
    assert found.token_bytes(BF16) == 4 * 2 * (192 + 128) * 2


def test_defaults_of_an_architecture_fill_a_sparse_config() -> None:
    """Gemma 3 leaves head_dim out; hidden_size over heads would be 240."""
    sparse = {"model_type": "gemma3_text", "hidden_size": 3840, "num_attention_heads": 16}
    found = read(**sparse, num_key_value_heads="absent", sliding_window=1024, num_hidden_layers=6)
    assert attention(found) == [
        ("sliding window of 1,024", 5, 4, 256, 256),
        ("full attention", 1, 4, 256, 256),
    ]


def test_a_latent_makes_heads_irrelevant() -> None:
    mla = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    found = [read(**mla, head_dim=dim, num_key_value_heads=kv) for dim, kv in ((64, 8), (192, 2))]
    assert [one.token_bytes(BF16) for one in found] == [4 * 576 * 2] * 2
    assert read(kv_lora_rank=None).token_bytes(BF16) == 4 * 2 * 64 * 2 * 2


def kinds(geometry: Geometry) -> dict[str, int]:
    return {part.name: part.layers for part in geometry.parts}


MAMBA = {
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
}
GDN = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_value_head_dim": 8,
    "linear_key_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
WINDOW = {"sliding_window": 128}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"layer_types": ["full_attention", "sliding_attention"] * 2, **WINDOW},
            {"full attention": 2, "sliding window of 128": 2},
        ),
        (
            {"layer_types": ["chunked_attention"] * 4, "attention_chunk_size": 64},
            {"chunked window of 64": 4},
        ),
        (
            {"layer_types": ["linear_attention"] * 3 + ["attention"], **GDN},
            {"gated DeltaNet": 3, "full attention": 1},
        ),
        (
            {"layer_types": ["conv"] * 3 + ["full_attention"], "conv_L_cache": 3},
            {"short convolution": 3, "full attention": 1},
        ),
        (
            {"sliding_window_pattern": 4, **WINDOW},
            {"sliding window of 128": 3, "full attention": 1},
        ),
        (
            {"sliding_window_pattern": "LG", **WINDOW},
            {"sliding window of 128": 2, "full attention": 2},
        ),
        (
            {"model_type": "gemma2", "head_dim": 64, **WINDOW},
            {"sliding window of 128": 2, "full attention": 2},
        ),
        ({"full_attention_interval": 4, **GDN}, {"gated DeltaNet": 3, "full attention": 1}),
        ({"hybrid_override_pattern": "M*-E", **MAMBA}, {"Mamba-2": 1, "full attention": 1}),
        (
            {"layers_block_type": ["mamba", "attention", "mamba", "moe"], **MAMBA},
            {"Mamba-2": 2, "full attention": 1},
        ),
        (
            {
                "attn_layer_period": 4,
                "attn_layer_offset": 2,
                "mamba_expand": 2,
                "mamba_d_state": 16,
                "mamba_d_conv": 4,
            },
            {"Mamba-1": 3, "full attention": 1},
        ),
        ({"attn_type_list": [0, 0, 0, 1]}, {"lightning attention": 3, "full attention": 1}),
        (
            {"hybrid_layer_pattern": [0, 1, 1, 1], **WINDOW},
            {"full attention": 1, "sliding window of 128": 3},
        ),
        (
            {
                "linear_attn_config": {
                    "full_attn_layers": [4],
                    "kda_layers": [1, 2, 3],
                    "num_heads": 2,
                    "head_dim": 8,
                    "short_conv_kernel_size": 4,
                }
            },
            {"Kimi delta attention": 3, "full attention": 1},
        ),
        (
            {
                "compress_ratios": [0, 4, 4, 128],
                "head_dim": 512,
                "index_head_dim": 128,
                **WINDOW,
            },
            {"sliding window of 128": 1, "compressed 1:4": 2, "compressed 1:128": 1},
        ),
        (
            {
                "num_key_value_heads": None,
                "block_configs": [{"attention": {"n_heads_in_group": 8}}] * 3
                + [{"attention": {"no_op": True}}],
            },
            {"full attention": 3},
        ),
        (
            {"attention_chunk_size": 64, "no_rope_layers": []},
            {"chunked window of 64": 3, "full attention": 1},
        ),
    ],
)
def test_every_way_to_say_which_kind_a_layer_is(
    fields: dict[str, Any], expected: dict[str, int]
) -> None:
    assert kinds(read(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"layer_types": ["full_attention"] * 3 + ["wavelet_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"hybrid_override_pattern": "M*Q-", **MAMBA}, "hybrid_override_pattern"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_num_value_heads"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({"layer_types": ["mamba"] * 4, "mamba_num_heads": 4}, "mamba_head_dim"),
        ({"hybrid_layer_pattern": [0, 1, 2, 1]}, "hybrid_layer_pattern"),
        ({"hybrid_layer_pattern": [0, True, 1, 1]}, "hybrid_layer_pattern"),
        ({"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}}, "linear_attn"),
        ({"compress_ratios": [4, 4, -1, 4]}, "compress_ratios"),
        ({"attention_chunk_size": 64, "no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"rwkv_version": 7}, "rwkv_version"),
        ({"mamba_mystery": 3}, "mamba_mystery"),
        ({"cross_layer_sharing": 2}, "cross_layer_sharing"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"num_hidden_layers": 1 << 30}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_key_value_heads": [0, 0, 0, 0]}, "none of them keeps"),
        ({"hybrid_override_pattern": "----"}, "none of them keeps"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ({"index_head_dim": 8, "kv_lora_rank": 8}, "qk_rope_head_dim"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelFileError, match=named):
        read(**fields)


def test_a_window_that_is_switched_off() -> None:
    """Qwen2.5 names a window of 131,072 and does not use it."""
    qwen = {"model_type": "qwen2", "sliding_window": 131_072, "max_window_layers": 2}
    assert kinds(read(**qwen, use_sliding_window=False)) == {"full attention": 4}
    assert kinds(read(**qwen)) == {"full attention": 4}
    assert kinds(read(**qwen, use_sliding_window=True)) == {
        "full attention": 2,
        "sliding window of 131,072": 2,
    }


def test_mistral_has_a_window_unless_it_is_null() -> None:
    mistral = {"model_type": "mistral"}
    assert kinds(read(**mistral, sliding_window=None)) == {"full attention": 4}
    assert kinds(read(**mistral)) == {"sliding window of 4,096": 4}
    assert kinds(read(**mistral, **WINDOW)) == {"sliding window of 128": 4}


def test_kinds_may_have_geometries_of_their_own() -> None:
    pattern = {"hybrid_layer_pattern": [0, 1, 1, 1], **WINDOW, "head_dim": 192, "v_head_dim": 128}
    own = {"swa_num_key_value_heads": 4, "swa_head_dim": 192, "swa_v_head_dim": 128}
    assert attention(read(**pattern, **own)) == [
        ("full attention", 1, 2, 192, 128),
        ("sliding window of 128", 3, 4, 192, 128),
    ]
    gemma4 = {"num_global_key_value_heads": 1, "global_head_dim": 128, "attention_k_eq_v": True}
    types = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], **WINDOW}
    found = read(**types, **gemma4)
    assert attention(found) == [
        ("sliding window of 128", 3, 2, 64, 64),
        ("full attention", 1, 1, 128, 128),
    ]
    assert found.token_bytes(BF16) == 2 * 128 * 2  # K equal to V before rotation saves nothing


def test_ranks_copy_heads_once_they_outnumber_them() -> None:
    found = read()
    assert [found.token_bytes(BF16, tp) for tp in (1, 2, 4, 8)] == [2048, 1024, 1024, 1024]
    mla = read(kv_lora_rank=512, qk_rope_head_dim=64)
    assert mla.token_bytes(BF16, 8) == mla.token_bytes(BF16, 1)
    hybrid = read(hybrid_override_pattern="MMM*", **MAMBA)
    assert hybrid.fixed_bytes(BF16, 4) * 4 == hybrid.fixed_bytes(BF16)


def test_a_state_does_not_grow() -> None:
    (state,) = (p for p in read(full_attention_interval=4, **GDN).parts if isinstance(p, Recurrent))
    one_layer = 4 * 8 * 8 * 4 + (2 * 2 * 8 + 4 * 8) * 3 * 2
    assert state.sequence_bytes(1, BF16) == state.sequence_bytes(10**6, BF16) == 3 * one_layer


@pytest.mark.parametrize(
    ("config", "quantization", "dtype", "rule"),
    [
        ({}, None, "bfloat16", "no dtype"),
        ({"torch_dtype": "float16"}, None, "float16", "dtype of the config"),
        ({}, {"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8", "kv_cache_quant_algo"),
        ({}, {"quantization": {"kv_cache_quant_algo": None}}, "bfloat16", "no dtype"),
        (
            {"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": None}},
            None,
            "bfloat16",
            "no dtype",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "fp8",
                    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
                }
            },
            None,
            "fp8",
            "kv_cache_scheme",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": "FP8"}},
            None,
            "fp8",
            "kv_cache_scheme",
        ),
        # The weights' own format says nothing about K and V.
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, None, "bfloat16", "no dtype"),
    ],
)
def test_the_dtype_of_k_and_v(
    config: dict[str, Any], quantization: dict[str, Any] | None, dtype: str, rule: str
) -> None:
    found = model(quantization, **config)
    assert found.kv_dtype == dtype
    assert rule in found.kv_rule


def test_an_unknown_kv_format_is_refused() -> None:
    with pytest.raises(ModelFileError, match="kv_cache_quant_algo"):
        model({"quantization": {"kv_cache_quant_algo": "FP3"}})
    with pytest.raises(ConfigError, match="kv_cache_dtype"):
        kv_format("fp3")


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "float32"}, "fp32"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "int4"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "modelopt_mixed"}}, None),
    ],
)
def test_the_dtype_of_weights(config: dict[str, Any], dtype: str | None) -> None:
    assert model(**config).weight_dtype == dtype


@pytest.mark.parametrize(
    ("name", "bytes_of_128"),
    [
        ("bfloat16", 256),
        ("fp8", 128),
        ("int8_per_token_head", 132),
        ("int4_g32", 72),
        ("int4_g32_zero", 80),
        ("nvfp4", 72),
        ("mxfp4", 68),
        ("q8_0", 136),
        ("q4_0", 72),
    ],
)
def test_formats_count_their_scales(name: str, bytes_of_128: int) -> None:
    assert KV_FORMATS[name].vector_bytes(128) == bytes_of_128


@pytest.mark.parametrize("family", FAMILIES)
def test_planner_and_engine_take_the_same_sizes(tmp_path: Path, family: str) -> None:
    tiny_family(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    found = from_hf(config, family, source="test").geometry
    spec = engine_reading(config).kv_spec("bfloat16", 16)
    for tokens in (1, 16, 17, 23, 24, 25, 500):
        engine = sum(group.bytes_per_token * group.kind.peak(tokens, 1) for group in spec.groups)
        assert found.sequence_bytes(tokens, BF16) == engine
    assert found.early_token_bytes(BF16) == spec.bytes_per_token


@pytest.mark.parametrize("arch", GGUF_FAMILIES)
def test_a_gguf_header(tmp_path: Path, arch: str) -> None:
    built = tiny_family(tmp_path, arch)
    write_family_gguf(tmp_path / "m.gguf", built, arch=arch)
    header = read_header(tmp_path / "m.gguf")
    found = from_gguf_header(header, "m")
    config = json.loads((tmp_path / "config.json").read_text())
    expected = from_hf(config, "m", source="test")
    assert found.geometry.sequence_bytes(300, BF16) == expected.geometry.sequence_bytes(300, BF16)
    assert found.score_width == expected.score_width
    assert found.stored_weight_bytes == sum(tensor.n_bytes for tensor in header.tensors)
    assert found.parameters is not None
    assert expected.parameters is not None
    assert found.parameters.total == expected.parameters.total


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 5), st.text(max_size=4), st.none()), max_size=6),
    st.dictionaries(st.text(max_size=6), st.integers(), max_size=3),
)


@settings(max_examples=300)
@given(name=st.sampled_from(card_names()), data=st.data(), junk=JUNK)
def test_damaged_configs_are_refused_or_read(name: str, data: st.DataObject, junk: Any) -> None:
    config = copy.deepcopy(card_config(name))
    inner = text_part(config)
    field = data.draw(st.sampled_from(sorted(inner)))
    nested = inner[field]
    if isinstance(nested, dict) and nested and data.draw(st.booleans()):
        nested[data.draw(st.sampled_from(sorted(nested)))] = junk
    else:
        inner[field] = junk  # type: ignore[index]
    with suppress(ModelFileError):
        found = from_hf(config, name, source="test")
        assert found.geometry.sequence_bytes(1000, BF16) >= 0
