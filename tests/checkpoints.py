"""Tiny random checkpoints that tests write themselves: a safetensors folder, an equal GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.k_blocks import K_TYPES, k_blocks

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_llama(
    folder: Path, *, tie: bool = True, sharded: bool = False, seed: int = 0, **overrides: Any
) -> LlamaForCausalLM:
    """Build a random Llama, save it under `folder` without tokenizer, return it (eval, float32).

    `overrides` are LlamaConfig fields. `sharded` splits the weights over two files with an index.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**_TINY, "tie_word_embeddings": tie, **overrides})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).float().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.copy_(1.0 + 0.1 * torch.randn_like(parameter))
                else:
                    parameter.copy_(0.15 * torch.randn_like(parameter))
    folder.mkdir(parents=True, exist_ok=True)
    save_folder(folder, model, sharded=sharded)
    return model


def save_folder(folder: Path, model: LlamaForCausalLM, *, sharded: bool = False) -> None:
    """Write config.json and the weights as a hub checkpoint has them: a tied head is not stored."""
    config = model.config.to_dict()
    config["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config, default=str))
    tensors = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    if not sharded:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    weight_map: dict[str, str] = {}
    for number, half in enumerate(halves, 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in half}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(half, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_gguf(path: Path, model: LlamaForCausalLM, *, quant: str = "F32") -> None:
    """Write `model` as a GGUF file of architecture "llama", its matrices quantised as `quant`.

    A type that the gguf package reads but does not write gets random bytes instead of the model's.
    Norms and biases stay F32. Rows of q and k are stored as that architecture wants them:
    interleaved pairs. Llama 3 RoPE scaling becomes the divisors in rope_freqs.weight.
    """
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    qtype = gguf.GGMLQuantizationType[quant]
    for name, value in model.named_parameters():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if "q_proj" in name or "k_proj" in name:
            value = interleave(value, heads if "q_proj" in name else kv_heads)
        array = value.detach().float().contiguous().numpy()
        if array.ndim == 1 or qtype == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), array)
        else:
            packed = quantised(array, quant)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=qtype)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(model).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised(array: np.ndarray, quant: str) -> np.ndarray:
    """`array` [rows, columns] in blocks of `quant`; random ones, with small scales, if it must be.

    Types without a quantiser have the scale's exponent in a block's second byte, IQ1_M in its last.
    """
    import gguf

    if quant in K_TYPES:
        return k_blocks(array.shape, quant, deviation=float(array.std()))
    kind = gguf.GGMLQuantizationType[quant]
    if not quant.startswith(("IQ1", "IQ2", "IQ3")):
        return gguf.quants.quantize(array, kind)
    elements, width = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = array.shape
    raw = np.random.default_rng(rows).integers(
        0, 256, (rows * columns // elements, width), np.uint8
    )
    raw[:, -1 if quant == "IQ1_M" else 1] &= 0x9F
    return raw.reshape(rows, -1)


def rope_divisors(model: LlamaForCausalLM) -> torch.Tensor:
    """Plain RoPE frequencies over the model's own: shape [head_dim / 2]."""
    theta = float(model.config.rope_parameters["rope_theta"])
    own = model.model.rotary_emb.inv_freq.float()
    exponents = torch.arange(len(own), dtype=torch.float32) / len(own)
    return (1.0 / theta**exponents) / own


def interleave(value: torch.Tensor, heads: int) -> torch.Tensor:
    """Make rows i and i + d/2 of each head of `value` neighbours: halves order -> pairs order."""
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def gguf_name(name: str) -> str:
    """GGUF tensor name of a Hugging Face Llama parameter."""
    fixed = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    stem, suffix = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{fixed[stem]}.{suffix}"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{fixed[part]}.{suffix}"
