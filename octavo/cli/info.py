"""`octavo info`: what a model's K and V cost and how many tokens fit here. Loads no weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.cli.engine_options import with_engine_options
from octavo.cli.local import DEFAULT_MODEL
from octavo.cli.units import count, size
from octavo.compute.json_file import read_object
from octavo.core.config import EngineConfig, Machine, resolve_sizes
from octavo.core.errors import ConfigError
from octavo.core.gguf_config import from_gguf
from octavo.core.gguf_header import GGUFHeader, read_header
from octavo.core.hf_config import from_hf
from octavo.core.model_config import ModelConfig
from octavo.core.spec import DTYPE_BYTES, SCALE_BYTES, SCALED_DTYPES, Group, KVSpec, Sliding
from octavo.engine import machine
from octavo.engine.generation_defaults import (
    GENERATION_CONFIG,
    GenerationDefaults,
    generation_defaults,
)

SHOWN_DTYPES = ("float32", "float16")  # bfloat16 takes the bytes of float16


@with_engine_options
def info(
    options: dict[str, Any],
    model: Annotated[str, typer.Argument(help="alias, folder, .gguf file or hub id")] = (
        DEFAULT_MODEL
    ),
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Show the KV geometry of a model and how many tokens fit in the memory here."""
    config = EngineConfig.of(model, **options)
    from octavo.compute.hub import resolve
    from octavo.compute.kept_weights import kept

    path = resolve(model)
    header = header_of(path)
    shape, defaults = read_config(path, header), read_defaults(config, path, header)
    draft = read_draft(config)
    memory_bytes = machine.available_bytes()
    fits = [fit(config, shape, dtype, memory_bytes, draft=draft) for dtype in dtypes(config)]
    if as_json:
        found = report(model, shape, memory_bytes, fits)
        found |= {"sampling": defaults.stated(), "sampling_from": defaults.source}
        print(json.dumps(found | {"kept_weights_bytes": kept().n_bytes}))
    else:
        print("\n".join([*lines(model, shape, memory_bytes, fits), f"Sampling: {defaults}"]))
        if kept().n_files:
            print(f"Rounded weights kept for the next start: {kept()}")


def header_of(path: Path) -> GGUFHeader | None:
    """That of a .gguf file; None for a folder."""
    return read_header(path) if path.is_file() else None


def read_defaults(
    config: EngineConfig, path: Path, header: GGUFHeader | None
) -> GenerationDefaults:
    """The sampling that the engine would take for requests that do not set it."""
    if config.model.generation_config == "none":
        return GenerationDefaults()
    return generation_defaults(path, None if header is None else header.metadata)


def read_config(path: Path, header: GGUFHeader | None) -> ModelConfig:
    """The geometry from a GGUF header, or from the config.json of the folder at `path`."""
    if header is not None:
        return from_gguf(header.metadata, tensor_names=[one.name for one in header.tensors])
    generation = path / GENERATION_CONFIG
    return from_hf(
        read_object(path / "config.json"), read_object(generation) if generation.exists() else None
    )


def read_draft(config: EngineConfig) -> ModelConfig | None:
    """The geometry of the draft model, if one is asked for."""
    name = config.speculation.speculative_model
    if name is None:
        return None
    from octavo.compute.hub import resolve

    path = resolve(name)
    return read_config(path, header_of(path))


def dtypes(config: EngineConfig) -> tuple[str, ...]:
    """The KV dtypes to show: the one asked for, else those whose sizes `auto` may take."""
    asked = config.cache.kv_cache_dtype
    if asked == "auto":
        asked = config.model.dtype
    return SHOWN_DTYPES if asked == "auto" else (asked,)


def draft_dtype(config: EngineConfig, dtype: str) -> str:
    """KV dtype of a draft model beside the model's `dtype`: it takes that of `auto`, whatever the
    model was asked to."""
    if config.cache.kv_cache_dtype == "auto":
        return dtype
    asked = config.model.dtype
    return "float16" if asked == "auto" else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One KV dtype on this machine. `refusal` says why nothing fits. `weight_bytes` and memory are
    shared with the draft model, if there is one.

    `sequence_blocks`: the most that one sequence of `sequence_tokens`, the longest, holds at once.
    """

    dtype: str
    spec: KVSpec
    weight_bytes: int
    num_blocks: int
    refusal: str | None

    sequence_tokens: int
    sequence_blocks: int

    draft: KVSpec | None
    draft_blocks: int

    @property
    def tokens(self) -> int:
        return self.spec.tokens_held(self.num_blocks)


def fit(
    config: EngineConfig,
    shape: ModelConfig,
    dtype: str,
    memory_bytes: int,
    *,
    draft: ModelConfig | None = None,
) -> Fit:
    """Blocks that the engine would take: its own rule, on what the weights would leave."""
    spec = shape.kv_spec(dtype, config.cache.block_size)
    draft_spec = None
    weight_bytes = bytes_of_weights(config, shape, kv_dtype=dtype)
    if draft is not None:
        draft_spec = draft.kv_spec(draft_dtype(config, dtype), config.cache.block_size)
        weight_bytes += bytes_of_weights(config, draft, kv_dtype=dtype)
    left = max(0, memory_bytes - weight_bytes)
    here = Machine(native_bf16=dtype == "bfloat16", available_bytes=left, threads=1)
    longest = min(config.model.max_model_len or shape.max_position, shape.max_position)
    num_blocks, draft_blocks, refusal = 0, 0, None
    try:
        sized = resolve_sizes(
            config, here, spec=spec, max_position=shape.max_position, draft=draft_spec
        )
        num_blocks = sized.cache.num_blocks or 0
        draft_blocks = sized.speculation.speculative_num_blocks or 0
    except ConfigError as error:
        refusal = error.message
    return Fit(
        dtype=dtype,
        spec=spec,
        weight_bytes=weight_bytes,
        num_blocks=num_blocks,
        refusal=refusal,
        sequence_tokens=longest,
        sequence_blocks=spec.blocks_at_peak(longest, config.scheduler.max_num_batched_tokens),
        draft=draft_spec,
        draft_blocks=draft_blocks,
    )


def bytes_of_weights(config: EngineConfig, shape: ModelConfig, *, kv_dtype: str) -> int:
    """In the dtype asked for, that of K and V if it is open, or as quantised at load."""
    if config.model.quantization is not None:
        return rounded_bytes(shape, config.model.quantization)
    dtype = config.model.dtype
    if dtype == "auto":
        dtype = kv_dtype if kv_dtype in DTYPE_BYTES else "float32"
    return parameters(shape) * DTYPE_BYTES[dtype]


def rounded_bytes(shape: ModelConfig, quantization: str) -> int:
    """Of weights rounded at load: matrices with two bytes of scale per 32, and with as many of
    minimum in 4 bits; the embedding and the head always of 8 bits; vectors float32."""
    from octavo.compute.weights import expected_shapes

    total = 0
    for name, sizes in expected_shapes(shape).items():
        in_layer = name.startswith("model.layers.")
        bits = {"int8": 8.5, "int4": 5.0}[quantization if in_layer else "int8"]
        total += int(math.prod(sizes) * (bits if len(sizes) > 1 else 32) / 8)
    return total


def parameters(shape: ModelConfig) -> int:
    """Weights of all tensors that a decoder of this family and geometry has."""
    from octavo.compute.weights import expected_shapes

    return sum(math.prod(each) for each in expected_shapes(shape).values())


def report(model: str, shape: ModelConfig, memory_bytes: int, fits: list[Fit]) -> dict[str, Any]:
    """All of it as plain values; sizes in bytes and tokens."""
    return {
        "model": model,
        "family": shape.family,
        "layers": shape.n_layers,
        "hidden_size": shape.hidden_size,
        "heads": shape.n_heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "max_position": shape.max_position,
        "parameters": parameters(shape),
        "available_bytes": memory_bytes,
        "kv": {one.dtype: fit_report(one) for one in fits},
    }


def fit_report(one: Fit) -> dict[str, Any]:
    return {
        "bytes_per_token": one.spec.bytes_per_token,
        "block_tokens": one.spec.block_tokens,
        "block_bytes": one.spec.block_bytes,
        "weight_bytes": one.weight_bytes,
        "num_blocks": one.num_blocks,
        "tokens": one.tokens,
        "sequence_tokens": one.sequence_tokens,
        "sequence_blocks": one.sequence_blocks,
        "refusal": one.refusal,
        "draft_blocks": one.draft_blocks,
        "draft_block_bytes": 0 if one.draft is None else one.draft.block_bytes,
        "groups": [
            {
                "kind": type(group.kind).__name__.lower(),
                "window": window_tokens(group),
                "layers": len(group.layers),
                "kv_heads": group.kv_heads,
                "head_dim": group.head_dim,
                "bytes_per_token": group.bytes_per_token,
            }
            for group in one.spec.groups
        ],
    }


def lines(model: str, shape: ModelConfig, memory_bytes: int, fits: list[Fit]) -> list[str]:
    """All of it as text."""
    found = [
        f"{model}: {shape.family}, {shape.n_layers} layers, hidden {shape.hidden_size}, "
        f"{shape.n_heads} heads, {shape.kv_heads} KV heads of {shape.head_dim}, "
        f"vocabulary {count(shape.vocab_size)}, context {count(shape.max_position)} tokens",
        f"{count(parameters(shape))} parameters; {size(memory_bytes)} of memory are free here",
    ]
    for one in fits:
        found += fit_lines(one, memory_bytes)
    return found


def fit_lines(one: Fit, memory_bytes: int) -> list[str]:
    """One dtype: bytes a token by group, a block, and the arithmetic of what fits."""
    spec = one.spec
    found = [f"KV cache in {one.dtype}:", *group_lines(spec)]
    found.append(f"  block of {spec.block_tokens} tokens: {size(spec.block_bytes)}")
    if len(spec.groups) > 1:
        found[-1] += f", the layers of any one of the {len(spec.groups)} groups"
    if any(window_tokens(group) for group in spec.groups):
        whole = spec.blocks(one.sequence_tokens) * len(spec.groups)
        found.append(
            f"  a sequence of {count(one.sequence_tokens)} tokens holds at most "
            f"{count(one.sequence_blocks)} blocks, {size(one.sequence_blocks * spec.block_bytes)} "
            f"({count(whole)} without windows)"
        )
    if one.refusal is not None:
        return [*found, f"  does not fit: {one.refusal}"]
    taken = one.num_blocks * spec.block_bytes
    found.append(
        f"  fits: {count(one.tokens)} tokens = {count(one.num_blocks)} blocks, {size(taken)} "
        f"(of {size(memory_bytes)}, the weights take {size(one.weight_bytes)})"
    )
    if one.draft is not None:
        taken = one.draft_blocks * one.draft.block_bytes
        found.append(
            f"  draft model: {count(one.draft.tokens_held(one.draft_blocks))} tokens = "
            f"{count(one.draft_blocks)} blocks, {size(taken)}"
        )
    return found


def group_lines(spec: KVSpec) -> list[str]:
    """A line for each group; equal neighbours share one."""
    found: list[str] = []
    for _, same in groupby(spec.groups, key=lambda group: (group.kind, len(group.layers))):
        alike = list(same)
        group, times = alike[0], f"{len(alike)} × " if len(alike) > 1 else ""
        window = window_tokens(group)
        found.append(
            f"  {times}{len(group.layers)} {type(group.kind).__name__.lower()} layers"
            f"{f', window {count(window)} tokens' if window else ''}: 2 (K and V) · "
            f"{len(group.layers)} · {group.kv_heads} heads · {group.head_dim} · "
            f"{element_bytes(group)} = {count(group.bytes_per_token)} B a token "
            f"({size(group.bytes_per_token)})"
        )
    return found


def element_bytes(group: Group) -> str:
    """Bytes of one number of K or V, with its share of the scale where there is one."""
    if group.dtype in SCALED_DTYPES:
        return f"(1 + {SCALE_BYTES}/{group.head_dim}) B"
    return f"{DTYPE_BYTES[group.dtype]} B"


def window_tokens(group: Group) -> int | None:
    return group.kind.window if isinstance(group.kind, Sliding) else None
