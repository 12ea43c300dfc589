"""Start-up on the kernels: whether they can serve a model, its weights in panels, the executor.

Owns the reasons to refuse. Knows the file formats only by the types of their tensors.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.compute.attention import AttentionShape
from octavo.compute.gguf_quants import PLAIN
from octavo.compute.native import packed_file
from octavo.compute.native.executor import NativeExecutor
from octavo.compute.native.gguf_grids import GRIDS
from octavo.compute.native.layers import ModelPanels, load_panels
from octavo.compute.native.library import NotBuilt, Workers, load
from octavo.compute.native.parts import parts
from octavo.compute.native.pool import KV_TYPES, SUB_BLOCK, NativeKVPool
from octavo.compute.native.program import Limits, Recorder
from octavo.compute.places import places
from octavo.compute.rope import RopeTable
from octavo.compute.weights import WeightSource
from octavo.core.model_config import ModelConfig
from octavo.core.spec import KVSpec

MOST_HEADS_PER_KV = 128
GROUP = 32  # products and their activations are cut into groups of this many
MOST_HEAD_DIM = 256


def refusals(
    source: WeightSource,
    *,
    dtype: str,
    quantization: str | None,
    kv_dtype: str,
    block_tokens: int,
    device: str,
) -> list[str]:
    """Why the kernels cannot serve this model so configured; empty if they can."""
    try:
        load()
    except NotBuilt as error:
        return [str(error)]
    reasons = []
    if device != "cpu":
        reasons.append(f"they run on the CPU, not on {device}")
    if kv_dtype != "auto" and kv_dtype not in KV_TYPES:
        reasons.append(f"K and V in {kv_dtype} are not supported")
    if block_tokens % SUB_BLOCK:
        reasons.append(f"block_size {block_tokens} is not a multiple of {SUB_BLOCK}")
    reasons += _geometry_refusals(source.config())
    return reasons + _type_refusals(source, dtype=dtype, quantization=quantization)


def _geometry_refusals(config: ModelConfig) -> list[str]:
    widths = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "n_heads * head_dim": config.n_heads * config.head_dim,
    }
    reasons = [
        f"{name} {width} is not a multiple of {GROUP}"
        for name, width in widths.items()
        if width % GROUP
    ]
    if config.head_dim % SUB_BLOCK or config.head_dim > MOST_HEAD_DIM:
        reasons.append(
            f"head_dim {config.head_dim} is not a multiple of {SUB_BLOCK} up to {MOST_HEAD_DIM}"
        )
    if config.n_heads // config.kv_heads > MOST_HEADS_PER_KV:
        reasons.append(f"more than {MOST_HEADS_PER_KV} query heads share a KV head")
    return reasons


def _type_refusals(source: WeightSource, *, dtype: str, quantization: str | None) -> list[str]:
    types, shapes = source.types(), source.shapes()
    matrices = {name: types[name] for name, shape in shapes.items() if len(shape) > 1}
    stored = set(matrices.values())
    fixed, wide = sorted(stored - PLAIN.keys()), sorted(n for n in matrices if types[n] == "F32")
    if quantization is not None:
        if dtype != "auto":
            return [f"dtype {dtype} and quantization {quantization} exclude each other"]
        if fixed:
            return [f"quantization is for float weights, and these are stored as {_list(fixed)}"]
        return []
    if dtype not in ("auto", "bfloat16"):
        return [f"dtype {dtype} asks for weights that have no kernel; auto keeps those of the file"]
    if dtype == "bfloat16":
        if fixed:
            return [f"dtype bfloat16 is for float weights, and these are stored as {_list(fixed)}"]
        return []
    if wide:
        return [
            f"weights of 32 bits have no kernel ({len(wide)} tensors, the first is {wide[0]}): "
            "--dtype bfloat16 or --quantization rounds them"
        ]
    odd = sorted(stored - GRIDS.keys() - PLAIN.keys())
    if odd:
        return [f"weights stored as {_list(odd)} have no kernel"]
    pairs: dict[int | None, set[str]] = {}
    for name, place in places(source.config()).items():
        if place.field == "gate_up":
            pairs.setdefault(place.layer, set()).add(matrices[name])
    if any(len(kinds) > 1 for kinds in pairs.values()):
        return ["a layer's gate and up matrices are stored in different types"]
    return []


def _list(names: list[str]) -> str:
    return ", ".join(names)


def read_panels(
    source: WeightSource,
    *,
    dtype: str,
    quantization: str | None,
    keep_quantized: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ModelPanels:
    """The weights of a source that `refusals` let pass, packed: values as the file has them, or
    rounded as `quantization` or dtype bfloat16 says. `keep_quantized`: those that `quantization`
    rounds are kept for the next start, and taken from there if they are."""
    if quantization is None or not keep_quantized:
        found = parts(source, quantization=quantization, round_to_bf16=dtype == "bfloat16")
        return load_panels(source, found, progress=progress)
    key, config = packed_file.key_of(source.fingerprint(), quantization), source.config()
    kept = packed_file.read(key, config, quantization=quantization)
    if kept is None:
        kept = read_panels(source, dtype=dtype, quantization=quantization, progress=progress)
        packed_file.save(kept, key, config, quantization=quantization)
    elif progress is not None:
        progress(1, 1)
    return kept


def make_executor(
    config: ModelConfig,
    panels: ModelPanels,
    *,
    spec: KVSpec,
    shape: AttentionShape,
    num_blocks: int,
    max_model_len: int,
    limits: Limits,
    threads: int,
    share_prefix_reads: bool = True,
) -> NativeExecutor:
    """Takes the pool's memory, starts the threads and records the programs."""
    library = load()
    pool = NativeKVPool(library, spec.widest, num_blocks, block_tokens=spec.block_tokens)
    ropes = [RopeTable(config.rope, max_model_len)]
    if config.local_rope is not None:
        ropes.append(RopeTable(config.local_rope, max_model_len))
    recorder = Recorder(
        config,
        panels,
        pool=pool,
        shape=shape,
        ropes=ropes,
        limits=limits,
        share_prefix_reads=share_prefix_reads,
    )
    return NativeExecutor(
        config,
        pool,
        workers=Workers(library, threads),
        body=recorder.body(library),
        head=recorder.head(library),
    )
