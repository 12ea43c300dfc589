"""Tiny random checkpoints of every family: a folder as transformers has it, an equal GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 2.0**-17,  # the same in float32, which GGUF keeps it in
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Fields of a Phi-3 that was stretched from 64 tokens: half of its 16-wide heads turns in 4 pairs.
LONGROPE: dict[str, Any] = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.25, 1.5, 1.75],
        "long_factor": [1.5, 2.0, 4.0, 6.5],
    },
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
# Name -> (architecture of transformers, config fields). Windows are shorter than the prompts.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": 24}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 2},
    ),
    "qwen2_yarn": ("Qwen2", {"rope_parameters": YARN}),
    "qwen3": ("Qwen3", {"head_dim": 32, "attention_bias": True}),
    "phi3": (
        "Phi3",
        {
            "sliding_window": 17,
            "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
        },
    ),
    "gemma2": (
        "Gemma2",
        {"num_hidden_layers": 4, "head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 24,
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3",
        {"num_hidden_layers": 8, "head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 24,
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
         }},
    ),
}  # fmt: skip


def tiny_family(folder: Path, name: str, *, seed: int = 0, **overrides: Any) -> Any:
    """Build family `name` at random, save it under `folder`, return the model (eval, float32).

    Norm weights and biases are random too: at their defaults they hide mistakes. `overrides` are
    fields of the architecture's config class.
    """
    import transformers

    architecture, fields = FAMILIES[name]
    text = "Gemma3Text" if architecture == "Gemma3" else architecture
    config = getattr(transformers, f"{text}Config")(**{**SIZES, **fields, **overrides})
    config._attn_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{architecture}ForCausalLM")(config).float().eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                parameter.copy_(_random(parameter_name, parameter, architecture))
    folder.mkdir(parents=True, exist_ok=True)
    raw = {**model.config.to_dict(), "architectures": [f"{architecture}ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(raw, default=str))
    tensors = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return model


def _random(name: str, parameter: torch.Tensor, architecture: str) -> torch.Tensor:
    if "norm" in name:
        middle = 0.0 if architecture.startswith("Gemma") else 1.0
        return middle + 0.2 * torch.randn_like(parameter)
    return 0.15 * torch.randn_like(parameter)


GGUF_FAMILIES = ("qwen2", "qwen3", "phi3", "gemma2", "gemma3")


def write_family_gguf(path: Path, model: Any, *, arch: str, quant: str = "F32") -> None:
    """Write `model` as a GGUF file, its matrices quantised as `quant`, under the names that the
    gguf package has for `arch`.

    The metadata is what converters write; Gemma's norm weights get their 1 added.
    """
    import gguf

    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch in ("phi3", "gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[arch], config.num_hidden_layers)
    qtype = gguf.GGMLQuantizationType[quant]
    for name, value in model.named_parameters():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if "norm" in name and arch.startswith("gemma"):
            value = value + 1.0
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None
        array = value.detach().float().contiguous().numpy()
        if array.ndim == 1 or qtype == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(stored, array)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(array, qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
