"""A Hugging Face `config.json` as a PlannedModel. Owns the order in which fields are looked up.

Reads more than the engine runs: what a cache costs can be known for models that do not run here.
For those that do, the engine's own reading gives the same bytes. What could change a size and is
not understood is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.core.fields import Fields
from octavo.plan.geometry import Attention, Geometry, Part
from octavo.plan.hf_dtypes import kv_dtype_of, weight_dtype_of
from octavo.plan.hf_heads import Heads, first_of, read_heads
from octavo.plan.hf_parts import compressed_parts, read_parts
from octavo.plan.hf_unread import refuse_unread
from octavo.plan.layer_kinds import FULL, MAX_LAYERS, layer_kinds
from octavo.plan.model import Parameters, PlannedModel
from octavo.plan.parameters import estimated

WHERE = "config.json"
TEXT_PARTS = ("text_config", "llm_config", "language_config")
MAX_CONTEXT = 1 << 28
MAX_RATIO = 1 << 16
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYER_LISTS = ("layers_block_type", "hybrid_override_pattern", "layer_types")
CONTEXTS = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_transformer_layers")


def from_hf(
    config: Mapping[str, Any],
    name: str,
    *,
    source: str,
    quantization: Mapping[str, Any] | None = None,
    parameters: Parameters | None = None,
    stored_weight_bytes: int | None = None,
    mtp: bool = False,
) -> PlannedModel:
    """Read `config`; raises ModelFileError naming the field.

    `quantization`: the parsed `hf_quant_config.json` beside it. `parameters`: if they are known
    better than the config tells. `stored_weight_bytes`: of the weight files beside it. `mtp`: the
    layers that guess ahead keep K and V too.
    """
    text = text_part(config)
    fields = Fields(text, WHERE)
    refuse_unread(fields, text)
    n_layers = _n_layers(fields, text)
    mtp_name = first_of(fields, *MTP_LAYERS)
    mtp_layers = fields.count(mtp_name, limit=64) if mtp and mtp_name else 0
    parts, heads, rule = _parts(fields, text, n_layers=n_layers, mtp_layers=mtp_layers)
    if not parts:
        raise fields.error("num_hidden_layers", f"is {n_layers}, and none of them keeps anything")
    context = first_of(fields, *CONTEXTS)
    hidden = first_of(fields, "hidden_size", "n_embd", "d_model")
    kv_dtype, kv_rule = kv_dtype_of(config, text, quantization)
    return PlannedModel(
        name=name,
        source=source,
        geometry=Geometry(parts),
        layers=n_layers + mtp_layers,
        hidden_size=fields.size(hidden) if hidden else None,
        query_heads=heads.query_heads,
        head_dim=heads.key_dim,
        score_width=_score_width(fields, parts, heads),
        max_position=fields.size(context, limit=MAX_CONTEXT) if context else None,
        weight_dtype=weight_dtype_of(config, text, quantization),
        kv_dtype=kv_dtype,
        kv_rule=kv_rule,
        parameters=parameters or estimated(text, heads, n_layers=n_layers, parts=parts),
        stored_weight_bytes=stored_weight_bytes,
        is_moe=first_of(fields, *EXPERTS) is not None,
        notes=(f"layer kinds from {rule}",),
    )


EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder of text inside a model of several parts, at most two levels down."""
    for _ in range(2):
        inner: Mapping[str, Any] = next(
            (config[name] for name in TEXT_PARTS if isinstance(config.get(name), dict)), {}
        )
        if not inner:
            break
        config = inner
    return config


def _n_layers(fields: Fields, text: Mapping[str, Any]) -> int:
    """As stated, or as many as a list of their kinds has."""
    name = first_of(fields, *LAYER_COUNTS)
    if name is None:
        for listed in LAYER_LISTS:
            if isinstance(text.get(listed), list | str) and 0 < len(text[listed]) <= MAX_LAYERS:
                return len(text[listed])
    return fields.size(name or LAYER_COUNTS[0], limit=MAX_LAYERS)


def _parts(
    fields: Fields, text: Mapping[str, Any], *, n_layers: int, mtp_layers: int
) -> tuple[tuple[Part, ...], Heads, str]:
    """The parts, the heads, and the field that told the layer kinds."""
    if isinstance(text.get("block_configs"), list):
        parts, heads = _searched(fields, text, n_layers)
        return parts, heads, "block_configs"
    heads = read_heads(fields, text, n_layers=n_layers)
    if text.get("compress_ratios") is not None:
        ratios = _ratios(fields, text, n_layers=n_layers)[: n_layers + mtp_layers]
        return compressed_parts(fields, ratios), heads, "compress_ratios"
    kinds, rule = layer_kinds(fields, text, n_layers=n_layers)
    # The last layers read K and V of earlier ones and keep none.
    shared = fields.count("num_kv_shared_layers", 0, limit=n_layers - 1)
    kept = kinds[: n_layers - shared]
    parts = read_parts(fields, text, kinds=kept, heads=heads, mtp_layers=mtp_layers)
    return parts, heads, rule


def _ratios(fields: Fields, text: Mapping[str, Any], *, n_layers: int) -> tuple[int, ...]:
    """DeepSeek-V4's compression of each layer; layers that guess ahead may follow."""
    ratios = text["compress_ratios"]
    good = isinstance(ratios, list) and n_layers <= len(ratios) <= MAX_LAYERS
    if not good or not all(type(ratio) is int and 0 <= ratio <= MAX_RATIO for ratio in ratios):
        raise fields.error("compress_ratios", f"must list a whole number for {n_layers} layers")
    return tuple(ratios)


def _searched(
    fields: Fields, text: Mapping[str, Any], n_layers: int
) -> tuple[tuple[Part, ...], Heads]:
    """Nemotron's searched architectures: each block says how many query heads share a KV head, or
    that it has no attention (`no_op`, or linear layers in its place)."""
    blocks = text["block_configs"]
    heads = fields.size("num_attention_heads")
    if len(blocks) != n_layers:
        raise fields.error("block_configs", f"must describe each of {n_layers} layers")
    kv_heads = []
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise fields.error("block_configs", "must have an attention object in each block")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            kv_heads.append(0)
            continue
        share = attention.get("n_heads_in_group")
        if type(share) is not int or share < 1 or heads % share:
            raise fields.error(
                "block_configs", f"attention.n_heads_in_group must divide the {heads} heads"
            )
        kv_heads.append(heads // share)
    hidden_size = fields.size("hidden_size")
    shape = read_heads(
        Fields({"num_attention_heads": heads, "hidden_size": hidden_size}, WHERE),
        {"num_attention_heads": heads, "hidden_size": hidden_size},
        n_layers=n_layers,
    )
    found = Heads(
        query_heads=heads,
        kv_heads=tuple(kv_heads),
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
    )
    kinds = (FULL,) * n_layers
    return read_parts(fields, text, kinds=kinds, heads=found, mtp_layers=0), found


def _score_width(fields: Fields, parts: tuple[Part, ...], heads: Heads) -> int:
    """Multiply-adds of one new token with one stored one, over the layers that read everything."""
    if fields.has("kv_lora_rank"):
        rank, rope = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
        n_latent = sum(part.layers for part in parts if part.name == "latent (MLA)")
        return n_latent * heads.query_heads * (2 * rank + rope)
    full = [p for p in parts if isinstance(p, Attention) and p.kind.closed]
    return sum(p.layers * heads.query_heads * (p.key_dim + p.value_dim) for p in full)
