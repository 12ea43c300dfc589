"""From layer kinds and a `config.json` to the parts that keep something.

Owns which fields size a window, a latent, an indexer or a state of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.core.fields import MAX_TOKENS, Fields
from octavo.core.hf_layers import MISTRAL_WINDOW_TOKENS
from octavo.core.spec import Full, Sliding
from octavo.plan.geometry import (
    Attention,
    Compressed,
    Part,
    Recurrent,
    fp8_index_keys,
    index_keys,
    latent,
)
from octavo.plan.hf_heads import MAX_HEAD_DIM, Heads, first_of
from octavo.plan.layer_kinds import CHUNKED, CONV, FULL, LINEAR, MAMBA, SLIDING, Kinds

STATE_BYTES = 4  # recurrent states are float32
CONV_BYTES = 2  # the last inputs of a convolution are kept as activations are


def read_parts(
    fields: Fields, config: Mapping[str, Any], *, kinds: Kinds, heads: Heads, mtp_layers: int
) -> tuple[Part, ...]:
    """Parts in the order in which kinds first come. `mtp_layers` are further full layers."""
    parts: list[Part] = []
    for kind in dict.fromkeys(kinds):
        layers = [i for i, one in enumerate(kinds) if one == kind]
        extra = mtp_layers if kind == FULL else 0
        if kind in (FULL, SLIDING, CHUNKED):
            if kind == FULL and fields.has("kv_lora_rank"):
                parts += _latents(fields, config, len(layers) + extra)
                continue
            counts = Counter(heads.kv_heads[i] for i in layers)
            if extra:
                counts[heads.kv_heads[layers[-1]]] += extra
            shape = _swa_heads(fields, heads) if kind == SLIDING else _full_heads(fields, heads)
            parts += [
                _attention(fields, kind, shape, layers=n, kv_heads=kv, given=heads)
                for kv, n in counts.items()
                if kv
            ]
        elif kind == LINEAR:
            parts.append(_linear(fields, config, heads, layers=len(layers)))
        elif kind == MAMBA:
            parts.append(_mamba(fields, layers=len(layers)))
        elif kind == CONV:
            parts.append(_short_conv(fields, layers=len(layers)))
    return tuple(parts) + _sparse_index(fields, config)


def _attention(
    fields: Fields, kind: str, shape: Heads, *, layers: int, kv_heads: int, given: Heads
) -> Attention:
    # A geometry of its own replaces the count that all layers were read with.
    own = shape.kv_heads[0] if shape.kv_heads != given.kv_heads else kv_heads
    return Attention(
        kind=Full() if kind == FULL else Sliding(_window(fields, kind)),
        layers=layers,
        kv_heads=own,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        chunked=kind == CHUNKED,
    )


def _window(fields: Fields, kind: str) -> int:
    if kind == CHUNKED:
        return fields.size("attention_chunk_size", limit=MAX_TOKENS)
    name = first_of(fields, "sliding_window", "sliding_window_size") or "sliding_window"
    is_mistral = fields.text("model_type", "") == "mistral"
    default = (MISTRAL_WINDOW_TOKENS,) if is_mistral else ()
    return fields.size(name, *default, limit=MAX_TOKENS)


def _swa_heads(fields: Fields, heads: Heads) -> Heads:
    """MiMo states the geometry of its sliding layers in fields of their own."""
    key_dim = fields.size("swa_head_dim", heads.key_dim, limit=MAX_HEAD_DIM)
    own = first_of(fields, "swa_num_key_value_heads")
    return replace(
        heads,
        key_dim=key_dim,
        value_dim=fields.size(
            "swa_v_head_dim", heads.value_dim if key_dim == heads.key_dim else key_dim
        ),
        kv_heads=(fields.size(own),) * len(heads.kv_heads) if own else heads.kv_heads,
    )


def _full_heads(fields: Fields, heads: Heads) -> Heads:
    """Gemma 4 does so for its global layers. Its `attention_k_eq_v` saves nothing here: K and V
    come from one projection, but K is kept rotated and V is not, so both are kept."""
    if not fields.has("global_head_dim") and not fields.has("num_global_key_value_heads"):
        return heads
    dim = fields.size("global_head_dim", heads.key_dim, limit=MAX_HEAD_DIM)
    own = first_of(fields, "num_global_key_value_heads")
    kv_heads = (fields.size(own),) * len(heads.kv_heads) if own else heads.kv_heads
    return replace(heads, key_dim=dim, value_dim=dim, kv_heads=kv_heads)


def _latents(fields: Fields, config: Mapping[str, Any], layers: int) -> list[Part]:
    """MLA, and an indexer's keys where there is one: heads and head_dim play no part."""
    rank = fields.size("kv_lora_rank", limit=MAX_HEAD_DIM)
    rope_dim = fields.size("qk_rope_head_dim", limit=MAX_HEAD_DIM)
    parts: list[Part] = [latent(layers, rank=rank, rope_dim=rope_dim)]
    if fields.has("index_head_dim"):
        dim = fields.size("index_head_dim", limit=MAX_HEAD_DIM)
        n_full = _full_indexers(fields, config, layers)
        if n_full:
            parts.append(fp8_index_keys(n_full, dim=dim))
    return parts


def _full_indexers(fields: Fields, config: Mapping[str, Any], layers: int) -> int:
    """Of `indexer_types` only "full" ones keep keys; "shared" ones read those of another layer."""
    types = config.get("indexer_types")
    if types is None:
        return layers
    if not isinstance(types, list) or not set(map(str, types)) <= {"full", "shared"}:
        raise fields.error("indexer_types", 'may only hold "full" and "shared"')
    return types.count("full")


def _sparse_index(fields: Fields, config: Mapping[str, Any]) -> tuple[Part, ...]:
    """MiniMax-M3: keys to choose blocks by, on the layers that the switch names."""
    table = fields.table("sparse_attention_config")
    if table is None:
        return ()
    dim = table.size("sparse_index_dim", limit=MAX_HEAD_DIM)
    switches = config["sparse_attention_config"].get("sparse_attention_freq")
    if not isinstance(switches, list) or not set(map(str, switches)) <= {"0", "1"}:
        raise table.error("sparse_attention_freq", "must be a list of 0 and 1, one for each layer")
    return (index_keys(switches.count(1), dim=dim),) if 1 in switches else ()


def _linear(fields: Fields, config: Mapping[str, Any], heads: Heads, *, layers: int) -> Recurrent:
    """The state of linear attention, by the fields that its variant has."""
    if fields.has("linear_num_value_heads"):
        return _gated_delta(fields, layers)
    table = fields.table("linear_attn_config")
    if table is not None:
        return _kimi_delta(table, layers)
    if config.get("attn_type_list") is not None:
        n, dim = heads.query_heads, heads.key_dim
        return Recurrent(
            name="lightning attention",
            layers=layers,
            heads=n,
            layer_bytes=n * dim * dim * STATE_BYTES,
            spelt=f"{n} · {dim}² · {STATE_BYTES}",
        )
    raise fields.error(
        "linear_num_value_heads", "is missing, and some layers have linear attention"
    )


def _gated_delta(fields: Fields, layers: int) -> Recurrent:
    """nv·hk·hv·4 + (2·nk·hk + nv·hv)·(conv - 1)·2."""
    nv, nk = fields.size("linear_num_value_heads"), fields.size("linear_num_key_heads")
    hv = fields.size("linear_value_head_dim", limit=MAX_HEAD_DIM)
    hk = fields.size("linear_key_head_dim", limit=MAX_HEAD_DIM)
    kernel = fields.size("linear_conv_kernel_dim", limit=256)
    conv = (2 * nk * hk + nv * hv) * (kernel - 1) * CONV_BYTES
    return Recurrent(
        name="gated DeltaNet",
        layers=layers,
        heads=nv,
        layer_bytes=nv * hk * hv * STATE_BYTES + conv,
        spelt=f"{nv}·{hk}·{hv}·4 + (2·{nk}·{hk} + {nv}·{hv})·{kernel - 1}·2",
    )


def _kimi_delta(table: Fields, layers: int) -> Recurrent:
    """heads·hd²·4 + 3·heads·hd·(conv - 1)·2."""
    n, dim = table.size("num_heads"), table.size("head_dim", limit=MAX_HEAD_DIM)
    kernel = table.size("short_conv_kernel_size", limit=256)
    conv = 3 * n * dim * (kernel - 1) * CONV_BYTES
    return Recurrent(
        name="Kimi delta attention",
        layers=layers,
        heads=n,
        layer_bytes=n * dim * dim * STATE_BYTES + conv,
        spelt=f"{n}·{dim}²·4 + 3·{n}·{dim}·{kernel - 1}·2",
    )


def _mamba(fields: Fields, *, layers: int) -> Recurrent:
    """Mamba-2, nh·hd·state·4 + (nh·hd + 2·groups·state)·(conv - 1)·2; without heads Mamba-1."""
    name = first_of(fields, "mamba_num_heads", "mamba_n_heads")
    if name is None:
        return _mamba1(fields, layers)
    heads = fields.size(name)
    dim = fields.size(
        first_of(fields, "mamba_head_dim", "mamba_d_head") or "mamba_head_dim", limit=MAX_HEAD_DIM
    )
    state = fields.size(
        first_of(fields, "ssm_state_size", "mamba_d_state") or "ssm_state_size", limit=MAX_HEAD_DIM
    )
    groups = fields.size(first_of(fields, "n_groups", "mamba_n_groups") or "n_groups")
    kernel = fields.size(first_of(fields, "conv_kernel", "mamba_d_conv") or "conv_kernel")
    conv = (heads * dim + 2 * groups * state) * (kernel - 1) * CONV_BYTES
    return Recurrent(
        name="Mamba-2",
        layers=layers,
        heads=heads,
        layer_bytes=heads * dim * state * STATE_BYTES + conv,
        spelt=f"{heads}·{dim}·{state}·4 + ({heads}·{dim} + 2·{groups}·{state})·{kernel - 1}·2",
    )


def _mamba1(fields: Fields, layers: int) -> Recurrent:
    inner = fields.size("mamba_expand", limit=64) * fields.size("hidden_size")
    state = fields.size("mamba_d_state", limit=MAX_HEAD_DIM)
    kernel = fields.size("mamba_d_conv", limit=256)
    return Recurrent(
        name="Mamba-1",
        layers=layers,
        heads=inner,
        layer_bytes=inner * state * STATE_BYTES + inner * (kernel - 1) * CONV_BYTES,
        spelt=f"{inner}·{state}·4 + {inner}·{kernel - 1}·2",
    )


def _short_conv(fields: Fields, *, layers: int) -> Recurrent:
    """LFM2: the last inputs of a convolution over the hidden state."""
    width = fields.size(first_of(fields, "conv_dim", "hidden_size") or "hidden_size")
    kernel = fields.size("conv_L_cache", limit=256)
    return Recurrent(
        name="short convolution",
        layers=layers,
        heads=width,
        layer_bytes=width * (kernel - 1) * CONV_BYTES,
        spelt=f"{width}·{kernel - 1}·2",
    )


def compressed_parts(fields: Fields, ratios: tuple[int, ...]) -> tuple[Part, ...]:
    """DeepSeek-V4: layers by compression ratio; those of ratio 4 keep an index key of 4 bits an
    element for each entry."""
    dim = fields.size("head_dim", limit=MAX_HEAD_DIM)
    window = fields.size("sliding_window", limit=MAX_TOKENS)
    index_dim = fields.size("index_head_dim", limit=MAX_HEAD_DIM)
    return tuple(
        Compressed(
            layers=n,
            dim=dim,
            window=window,
            ratio=ratio,
            index_bytes=index_dim // 2 if ratio == 4 else 0,
        )
        for ratio, n in sorted(Counter(ratios).items())
    )
