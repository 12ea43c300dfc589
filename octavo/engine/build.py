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
from octavo.core.batch import Drafter, Runner
from octavo.core.cache import KVCache
from octavo.core.config import (
    EngineConfig,
    Machine,
    ModelOptions,
    resolve_length,
    resolve_numerics,
    resolve_sizes,
)
from octavo.core.draft_model import DraftModel
from octavo.core.errors import ConfigError
from octavo.core.events import Sink
from octavo.core.lookup import Lookup
from octavo.core.loop import Loop
from octavo.core.model_config import ModelConfig
from octavo.core.policies import Policies
from octavo.core.scheduler import Scheduler
from octavo.core.spec import KVSpec
from octavo.engine.backend import Backend, choose, load_weights, use_threads
from octavo.engine.draft_weights import DraftWeights, open_draft
from octavo.engine.engine import Engine
from octavo.engine.generation_defaults import GenerationDefaults, generation_defaults
from octavo.engine.info import EngineInfo, engine_info
from octavo.engine.machine import available_bytes, usable_threads
from octavo.engine.open_tokenizer import open_tokenizer
from octavo.engine.prepare import Preparer
from octavo.engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from octavo.compute.executor import Executor
    from octavo.compute.runner import Observer


@dataclass(frozen=True, slots=True)
class Built:
    engine: Engine
    info: EngineInfo
    runner: Runner


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
    progress = progress or NoProgress()
    device = _device(config.model)
    path = resolve(config.model.model, progress=progress)
    source = open_source(path)
    shape = source.config()
    backend, given, machine = choose(config, source), config, _machine(device)
    config = resolve_numerics(config, machine, native=backend.native)
    resolve_length(config, max_position=shape.max_position)
    defaults = _defaults(config, path, source.metadata())
    tokenizer = _tokenizer(config, path, source.metadata())
    draft = open_draft(given, machine, target=shape, tokenizer=tokenizer, progress=progress)
    use_threads(config, [backend] if draft is None else [backend, draft.backend])
    load_weights(backend, config, source, title=f"Loading {path.name}", progress=progress)
    if draft is not None:
        draft.load(progress)
    spec = shape.kv_spec(config.cache.kv_cache_dtype, config.cache.block_size)
    draft_spec = None if draft is None else draft.spec
    config = resolve_sizes(
        config, _machine(device), spec=spec, max_position=shape.max_position, draft=draft_spec
    )
    most = config.scheduler.max_num_seqs
    runner = _runner(backend.executor(config, spec), most, observer)
    if not config.ablations.kv_cache:
        runner = _without_kv_cache(runner, config, spec)
    loop = Loop(_scheduler(config, spec, sink, _drafter(config, draft, clock)), runner, clock)
    engine = Engine(
        loop,
        preparer=_preparer(config, shape, tokenizer, defaults=defaults),
        tokenizer=tokenizer,
        namespace=_namespace(config, source, backend),
        max_live=most + config.scheduler.max_num_queued_reqs,
    )
    info = engine_info(
        config, spec, backend, path=path, max_live=engine.max_live, defaults=defaults, draft=draft
    )
    return Built(engine, info, runner)


def _device(options: ModelOptions) -> torch.device:
    """Where to compute, refused here if it or the dtype cannot be: nothing is fetched yet."""
    import torch

    from octavo.compute.dtypes import resolve_dtype

    device = options.device
    try:
        chosen = torch.device(device)
        torch.ones(1, device=chosen).item()  # a device can be known by name and not be there
    except (RuntimeError, AssertionError, ImportError):
        raise ConfigError(
            f"device {device[:40]!a} is not one that torch can use here; use cpu", param="device"
        ) from None
    resolve_dtype(options.dtype, chosen)
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


def _runner(executor: Executor, max_num_seqs: int, observer: Observer | None = None) -> Runner:
    from octavo.compute.runner import ModelRunner

    return ModelRunner(executor, max_num_seqs=max_num_seqs, observer=observer)


def _without_kv_cache(runner: Runner, config: EngineConfig, spec: KVSpec) -> Runner:
    from octavo.compute.recompute import Recompute

    if not all(group.kind.closed for group in spec.groups):
        raise ConfigError(
            "kv_cache cannot be off for a model with sliding windows: what has left one is gone",
            param="kv_cache",
        )
    scheduler = config.scheduler
    return Recompute(
        runner, max_tokens=scheduler.max_num_batched_tokens, max_rows=scheduler.max_num_seqs
    )


def _scheduler(
    config: EngineConfig, spec: KVSpec, sink: Sink | None, drafter: Drafter | None
) -> Scheduler:
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
        drafter=drafter,
    )


def _drafter(
    config: EngineConfig, draft: DraftWeights | None, clock: Callable[[], float]
) -> Drafter | None:
    options = config.speculation
    most_tokens, most_running = options.num_speculative_tokens, options.speculative_max_seqs
    if options.speculative_method == "off":
        return None
    if draft is None:
        return Lookup(most_tokens=most_tokens, most_running=most_running)
    num_blocks = options.speculative_num_blocks or 0
    step_tokens = config.scheduler.max_num_batched_tokens
    most_rows = min(most_running, config.scheduler.max_num_seqs)
    executor = draft.executor(num_blocks, max_num_seqs=most_rows)
    policies = Policies(share_in_flight=False)
    return DraftModel(
        _runner(executor, most_rows),
        KVCache(draft.spec, num_blocks, step_tokens=step_tokens, policies=policies),
        clock=clock,
        most_tokens=most_tokens,
        most_running=most_running,
        step_tokens=step_tokens,
        n_positions=draft.n_positions,
    )


def _tokenizer(
    config: EngineConfig, path: Path, metadata: dict[str, Any] | None
) -> Tokenizer | None:
    return None if config.model.skip_tokenizer_init else open_tokenizer(path, metadata)


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


def _namespace(config: EngineConfig, source: WeightSource, backend: Backend) -> bytes | None:
    """Everything besides tokens that shapes the bytes of K and V; None if they are not cached."""
    if not config.cache.enable_prefix_caching:
        return None
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
