"""GGUF metadata to ModelConfig: the keys of architecture llama and the refusals by key."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.errors import ModelFileError
from octavo.core.gguf_config import from_gguf
from octavo.core.model_config import ModelConfig, RopeConfig

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.file_type": 3,
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 49152,
    "llama.rope.dimension_count": 64,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def test_metadata_is_read_field_by_field() -> None:
    assert from_gguf(LLAMA, tensor_names=["token_embd.weight"]) == ModelConfig(
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
        bos_token_ids=(1,),
        eos_token_ids=(2,),
    )


def test_the_directory_tells_head_and_biases() -> None:
    names = ["output.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate.bias"]
    config = from_gguf(LLAMA, tensor_names=names)
    assert (config.tie_embeddings, config.attention_bias, config.mlp_bias) == (False, True, True)


def test_defaults_of_absent_keys() -> None:
    keys = ("llama.attention.head_count_kv", "llama.rope.freq_base", "llama.rope.dimension_count")
    config = from_gguf({k: v for k, v in LLAMA.items() if k not in keys})
    assert config.kv_heads == 9
    assert config.rope == RopeConfig(theta=10000.0, dim=64)


def test_head_dim_of_its_own() -> None:
    lengths = {"llama.attention.key_length": 128, "llama.attention.value_length": 128}
    config = from_gguf({**LLAMA, **lengths, "llama.rope.dimension_count": 128})
    assert config.head_dim == 128


def test_vocabulary_from_the_token_list() -> None:
    raw = {k: v for k, v in LLAMA.items() if k != "llama.vocab_size"}
    assert from_gguf({**raw, "tokenizer.ggml.tokens": ["a", "b", "c"]}).vocab_size == 3


@pytest.mark.parametrize(
    ("file_type", "dtype"), [(0, "float32"), (1, "float16"), (32, "bfloat16"), (7, "float32")]
)
def test_dtype_of_plain_files(file_type: int, dtype: str) -> None:
    assert from_gguf({**LLAMA, "general.file_type": file_type}).dtype == dtype


def test_every_end_token_counts_once() -> None:
    more = {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2}
    assert from_gguf({**LLAMA, **more}).eos_token_ids == (2, 9)


REFUSED: list[tuple[str, Any]] = [
    ("general.architecture", "qwen9"),
    ("general.architecture", None),
    ("general.architecture", ["llama"]),
    ("llama.block_count", 0),
    ("llama.block_count", None),
    ("llama.context_length", -1),
    ("llama.embedding_length", "576"),
    ("llama.embedding_length", 577),
    ("llama.attention.head_count", [9, 9]),
    ("llama.attention.head_count_kv", 2),
    ("llama.attention.key_length", 65),
    ("llama.attention.value_length", 32),
    ("llama.rope.dimension_count", 32),
    ("llama.rope.freq_base", float("nan")),
    ("llama.attention.layer_norm_rms_epsilon", None),
    ("llama.vocab_size", 1 << 40),
    ("llama.expert_count", 8),
    ("llama.attention.sliding_window", 4096),
    ("llama.rope.scaling.type", "yarn"),
    ("llama.rope.scale_linear", 0.5),
    ("tokenizer.ggml.eos_token_id", 49152),
    ("tokenizer.ggml.bos_token_id", -1),
]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refusals_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(ModelFileError) as caught:
        from_gguf({**LLAMA, key: value})
    assert caught.value.param == key
    assert key in caught.value.message


def test_no_vocabulary_at_all() -> None:
    raw = {k: v for k, v in LLAMA.items() if k != "llama.vocab_size"}
    with pytest.raises(ModelFileError, match=r"llama\.vocab_size is missing"):
        from_gguf(raw)
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.tokens is empty"):
        from_gguf({**raw, "tokenizer.ggml.tokens": []})
