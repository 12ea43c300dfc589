"""The one place that wires a config to core, model and tokenizer. Owns start-up and its sizing.

Everything slow or large happens here, in order: find the files, load the weights, size the pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo
from octavo.compute.hub import resolve
from octavo.compute.progress import NoProgress, Progress
from octavo.compute.weights import WeightSource, open_source
from octavo.core.batch import Drafter
from octavo.core.cache import KVCache
from octavo.core.config import (
    EngineConfig,
    Machine,
    SpeculationOptions,
    resolve_length,
    resolve_numerics,
    resolve_sizes,
)
from octavo.core.errors import ConfigError
from octavo.core.events import Sink
from octavo.core.gguf_header import read_header
from octavo.core.lookup import Lookup
from octavo.core.loop import Loop
from octavo.core.model_config import ModelConfig
from octavo.core.scheduler import Scheduler
from octavo.core.spec import KVSpec
from octavo.engine.backend import Backend, choose
from octavo.engine.engine import Engine
from octavo.engine.generation_defaults import GenerationDefaults, generation_defaults
from octavo.engine.machine import available_bytes, usable_threads
from octavo.engine.prepare import Preparer
from octavo.engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from octavo.compute.runner import Observer

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine chose at its start. Tokens, blocks and bytes as the names say.

    `max_live_sequences`: choices and beams of all requests that may run and wait at once.
    `defaults`: the sampling of requests that do not set it.
    """

    model: str
    source: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    device: str
    backend: str
    not_taken: tuple[str, ...]
    threads: int
    num_blocks: int
    block_tokens: int
    capacity_tokens: int
    bytes_per_token: int
    max_model_len: int
    max_num_seqs: int
    max_live_sequences: int
    max_num_batched_tokens: int
    memory_note: str
    defaults: GenerationDefaults


@dataclass(frozen=True, slots=True)
class Built:
    engine: Engine
    info: EngineInfo


def build(
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    sink: Sink | None = None,
    clock: Callable[[], float] = time.monotonic,
    observer: Observer | None = None,
) -> Built:
    """Load a model and make an engine. Raises ConfigError, ModelNotFound or ModelFileError.

    `observer` sees the rows that sample and their logits float32 [rows, vocab], in every step.
    """
    from octavo.compute.dtypes import resolve_dtype
    from octavo.compute.runner import ModelRunner

    progress = NoProgress() if progress is None else progress
    device = _device(config.model.device)
    resolve_dtype(config.model.dtype, device)  # refused before anything is fetched
    path = resolve(config.model.model, progress=progress)
    source = open_source(path)
    shape = source.config()
    backend = choose(config, source)
    config = resolve_numerics(config, _machine(device), native=backend.native)
    resolve_length(config, max_position=shape.max_position)
    metadata = None if path.is_dir() else read_header(path).metadata
    defaults = _defaults(config, path, metadata)
    tokenizer = _tokenizer(path, metadata, skip=config.model.skip_tokenizer_init)
    with progress.stage(f"Loading {path.name}", total_bytes=source.total_bytes()) as advance:
        backend.load(
            config,
            source,
            progress=lambda done, total: advance(source.total_bytes() * done // total),
        )
    spec = shape.kv_spec(config.cache.kv_cache_dtype, config.cache.block_size)
    config = resolve_sizes(
        config,
        _machine(device),
        spec=spec,
        max_position=shape.max_position,
    )
    runner = ModelRunner(
        backend.executor(config, spec),
        max_num_seqs=config.scheduler.max_num_seqs,
        observer=observer,
    )
    loop = Loop(_scheduler(config, spec, sink), runner, clock)
    engine = Engine(
        loop,
        preparer=_preparer(config, shape, tokenizer, defaults=defaults),
        tokenizer=tokenizer,
        namespace=_namespace(config, source, backend)
        if config.cache.enable_prefix_caching
        else None,
        max_live=config.scheduler.max_num_seqs + config.scheduler.max_num_queued_reqs,
    )
    info = _info(config, spec, backend, path=path, engine=engine, defaults=defaults)
    return Built(engine, info)


def _device(device: str) -> torch.device:
    import torch

    try:
        chosen = torch.device(device)
        torch.ones(1, device=chosen).item()  # a device can be known by name and not be there
    except (RuntimeError, AssertionError, ImportError):
        raise ConfigError(
            f"device {device[:40]!a} is not one that torch can use here; use cpu", param="device"
        ) from None
    return chosen


def _machine(device: torch.device) -> Machine:
    import torch

    from octavo.compute.dtypes import resolve_dtype

    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    return Machine(
        native_bf16=resolve_dtype("auto", device) is torch.bfloat16,
        available_bytes=free,
        threads=usable_threads(),
    )


def _tokenizer(path: Path, metadata: dict[str, Any] | None, *, skip: bool) -> Tokenizer | None:
    """That of the folder at `path`, or of the .gguf file with `metadata`."""
    if skip:
        return None
    if metadata is None:
        from octavo.engine.hf_tokenizer import from_folder

        return from_folder(path)
    from octavo.engine.gguf_tokenizer import from_metadata

    return from_metadata(metadata)


def _scheduler(config: EngineConfig, spec: KVSpec, sink: Sink | None) -> Scheduler:
    policies = config.policies()
    cache = KVCache(
        spec,
        config.cache.num_blocks or 0,
        step_tokens=config.scheduler.max_num_batched_tokens,
        policies=policies,
        sink=sink,
    )
    return Scheduler(
        cache,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        max_num_seqs=config.scheduler.max_num_seqs,
        policies=policies,
        drafter=_drafter(config.speculation),
    )


def _drafter(options: SpeculationOptions) -> Drafter | None:
    if options.speculative_method == "off":
        return None
    return Lookup(
        most_tokens=options.num_speculative_tokens, most_running=options.speculative_max_seqs
    )


def _defaults(
    config: EngineConfig, path: Path, metadata: dict[str, Any] | None
) -> GenerationDefaults:
    if config.model.generation_config == "none":
        return GenerationDefaults()
    return generation_defaults(path, metadata)


def _preparer(
    config: EngineConfig,
    shape: ModelConfig,
    tokenizer: Tokenizer | None,
    *,
    defaults: GenerationDefaults,
) -> Preparer:
    eos = set(shape.eos_token_ids)
    if tokenizer is not None:
        eos |= set(tokenizer.eos_ids)
    return Preparer(
        tokenizer,
        vocab_size=shape.vocab_size,
        max_model_len=config.model.max_model_len or shape.max_position,
        eos_token_ids=sorted(eos),
        defaults=defaults.params(),
    )


def _namespace(config: EngineConfig, source: WeightSource, backend: Backend) -> bytes:
    """Everything besides tokens that shapes the bytes of K and V."""
    shape = source.config()
    rope = shape.rope.at_length(config.model.max_model_len or shape.max_position)
    parts = (
        source.fingerprint(),
        backend.numerics.encode(),
        config.model.dtype.encode(),
        (config.model.quantization or "").encode(),
        config.cache.kv_cache_dtype.encode(),
        config.model.device.partition(":")[0].encode(),
        repr(sorted(asdict(rope).items())).encode(),
        octavo.__version__.encode(),
    )
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _info(
    config: EngineConfig,
    spec: KVSpec,
    backend: Backend,
    *,
    path: Path,
    engine: Engine,
    defaults: GenerationDefaults,
) -> EngineInfo:
    num_blocks = engine.cache.pool.total
    per_group = f" of one of {len(spec.groups)} groups" if len(spec.groups) > 1 else ""
    note = (
        f"{num_blocks} blocks * {spec.block_tokens} tokens * "
        f"{spec.widest.bytes_per_token:,} B per token{per_group} "
        f"= {num_blocks * spec.block_bytes / MIB:,.0f} MiB"
    )
    return EngineInfo(
        model=config.model.served_model_name or config.model.model,
        source=str(path),
        dtype=config.model.dtype,
        quantization=config.model.quantization,
        kv_cache_dtype=config.cache.kv_cache_dtype,
        device=config.model.device,
        backend=backend.numerics,
        not_taken=tuple(f"{name}: {', '.join(why)}" for name, why in backend.refused.items()),
        threads=config.model.threads or 1,
        num_blocks=num_blocks,
        block_tokens=spec.block_tokens,
        capacity_tokens=spec.tokens_held(num_blocks),
        bytes_per_token=spec.bytes_per_token,
        max_model_len=config.model.max_model_len or 0,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_live_sequences=engine.max_live,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        memory_note=note,
        defaults=defaults,
    )
