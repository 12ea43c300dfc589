"""Start-up on the kernels: whether they can serve a model, its weights in panels, the executor.

Owns the reasons to refuse. Knows the file formats only by the types of their tensors.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.compute.attention import AttentionShape
from octavo.compute.gguf_quants import PLAIN
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
    if dtype != "auto":
        reasons.append(f"dtype {dtype} asks for weights as floats; auto keeps those of the file")
    if kv_dtype != "auto" and kv_dtype not in KV_TYPES:
        reasons.append(f"K and V in {kv_dtype} are not supported")
    if block_tokens % SUB_BLOCK:
        reasons.append(f"block_size {block_tokens} is not a multiple of {SUB_BLOCK}")
    reasons += _geometry_refusals(source.config())
    return reasons + _type_refusals(source, quantization)


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


def _type_refusals(source: WeightSource, quantization: str | None) -> list[str]:
    types, shapes = source.types(), source.shapes()
    matrices = {name: types[name] for name, shape in shapes.items() if len(shape) > 1}
    if quantization is not None:
        fixed = sorted({each for each in matrices.values() if each not in PLAIN})
        if fixed:
            return [f"quantization is for float weights, and these are stored as {_list(fixed)}"]
        return []
    odd = sorted({each for each in matrices.values() if each not in GRIDS})
    if odd:
        hint = "; --quantization rounds floats at load" if set(odd) <= PLAIN.keys() else ""
        return [f"weights stored as {_list(odd)} have no kernel{hint}"]
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
    quantization: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ModelPanels:
    """The weights of a source that `refusals` let pass, packed: values as the file has them, or
    rounded as `quantization` says."""
    return load_panels(source, parts(source, quantization=quantization), progress=progress)


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
