"""The one place that wires a config to core, model and tokenizer. Owns start-up and its sizing.

Everything slow or large happens here, in order: find the files, load the weights, size the pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import octavo
from octavo.compute.attention import AttentionShape, Selection, select
from octavo.compute.hub import resolve
from octavo.compute.kv_pool import KVPool
from octavo.compute.progress import NoProgress, Progress
from octavo.compute.weights import WeightSource, open_source
from octavo.core.batch import Drafter
from octavo.core.cache import KVCache
from octavo.core.config import (
    EngineConfig,
    Machine,
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
from octavo.engine.draft_weights import DraftWeights, load_draft
from octavo.engine.engine import Engine
from octavo.engine.machine import available_bytes, usable_threads
from octavo.engine.open_tokenizer import open_tokenizer
from octavo.engine.prepare import Preparer
from octavo.engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from octavo.compute.decoder import Decoder
    from octavo.compute.runner import ModelRunner, Observer

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine chose at its start. Tokens, blocks and bytes as the names say.

    `max_live_sequences`: choices of all requests that may run and wait at once.
    `speculation_note`: how tokens are guessed, and with a draft model what its K and V take.
    """

    model: str
    source: str
    dtype: str
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
    speculation_note: str


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
    import torch

    from octavo.compute.dtypes import resolve_dtype
    from octavo.compute.load import load_decoder

    progress = NoProgress() if progress is None else progress
    device = _device(config.model.device)
    dtype = resolve_dtype(config.model.dtype, device)
    config = resolve_numerics(config, _machine(device))
    path = resolve(config.model.model, progress=progress)
    source = open_source(path)
    shape = source.config()
    max_len = resolve_length(config, max_position=shape.max_position)
    tokenizer = None if config.model.skip_tokenizer_init else open_tokenizer(path)
    torch.set_num_threads(config.model.threads or 1)
    draft = load_draft(
        config, target=shape, tokenizer=tokenizer, dtype=dtype, device=device, progress=progress
    )
    with progress.stage(f"Loading {path.name}", total_bytes=source.total_bytes()) as advance:
        decoder = load_decoder(
            source,
            dtype=dtype,
            device=device,
            n_positions=max_len,
            progress=lambda done, total: advance(source.total_bytes() * done // total),
        )
    spec = shape.kv_spec(config.cache.kv_cache_dtype, config.cache.block_size)
    config = resolve_sizes(
        config,
        _machine(device),
        spec=spec,
        max_position=shape.max_position,
        draft=None if draft is None else draft.spec,
    )
    most = config.scheduler.max_num_seqs
    selection, runner = _runner(config, spec, decoder, max_num_seqs=most, observer=observer)
    loop = Loop(_scheduler(config, spec, sink, _drafter(config, draft, clock)), runner, clock)
    engine = Engine(
        loop,
        preparer=_preparer(config, shape, tokenizer),
        tokenizer=tokenizer,
        namespace=_namespace(config, source) if config.cache.enable_prefix_caching else None,
        max_live=config.scheduler.max_num_seqs + config.scheduler.max_num_queued_reqs,
    )
    info = _info(config, spec, selection, path=path, engine=engine, draft=draft)
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


def _runner(
    config: EngineConfig,
    spec: KVSpec,
    decoder: Decoder,
    *,
    max_num_seqs: int,
    num_blocks: int | None = None,
    observer: Observer | None = None,
) -> tuple[Selection, ModelRunner]:
    """The pool takes its memory here: `num_blocks`, by default those of the config."""
    from octavo.compute.runner import ModelRunner

    attention = _attention_shape(config, decoder.config, spec)
    selection = select(config.model.attention_backend, attention)
    pool = KVPool(
        spec.widest,
        num_blocks or config.cache.num_blocks or 0,
        block_tokens=spec.block_tokens,
        device=decoder.device,
    )
    runner = ModelRunner(
        decoder,
        pool,
        backend=selection.kind(pool, attention),
        max_num_seqs=max_num_seqs,
        observer=observer,
    )
    return selection, runner


def _attention_shape(config: EngineConfig, shape: ModelConfig, spec: KVSpec) -> AttentionShape:
    return AttentionShape(
        n_heads=shape.n_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_tokens=config.cache.block_size,
        dtype=config.cache.kv_cache_dtype,
        groups=spec.groups,
        device=config.model.device,
        scale=shape.attention_scale,
        softcap=shape.attention_softcap,
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
    _, runner = _runner(
        config, draft.spec, draft.decoder, num_blocks=num_blocks, max_num_seqs=most_running
    )
    policies = Policies(share_in_flight=False)
    return DraftModel(
        runner,
        KVCache(draft.spec, num_blocks, step_tokens=step_tokens, policies=policies),
        clock=clock,
        most_tokens=most_tokens,
        most_running=most_running,
        step_tokens=step_tokens,
        n_positions=draft.n_positions,
    )


def _preparer(config: EngineConfig, shape: ModelConfig, tokenizer: Tokenizer | None) -> Preparer:
    eos = set(shape.eos_token_ids)
    if tokenizer is not None:
        eos |= set(tokenizer.eos_ids)
    return Preparer(
        tokenizer,
        vocab_size=shape.vocab_size,
        max_model_len=config.model.max_model_len or shape.max_position,
        eos_token_ids=sorted(eos),
    )


def _namespace(config: EngineConfig, source: WeightSource) -> bytes:
    """Everything besides tokens that shapes the bytes of K and V."""
    rope = repr(sorted(asdict(source.config().rope).items())).encode()
    parts = (
        source.fingerprint(),
        config.model.dtype.encode(),
        config.cache.kv_cache_dtype.encode(),
        config.model.device.partition(":")[0].encode(),
        rope,
        octavo.__version__.encode(),
    )
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _memory_note(spec: KVSpec, num_blocks: int) -> str:
    per_group = f" of one of {len(spec.groups)} groups" if len(spec.groups) > 1 else ""
    return (
        f"{num_blocks} blocks * {spec.block_tokens} tokens * "
        f"{spec.widest.bytes_per_token:,} B per token{per_group} "
        f"= {num_blocks * spec.block_bytes / MIB:,.0f} MiB"
    )


def _speculation_note(config: EngineConfig, draft: DraftWeights | None) -> str:
    options = config.speculation
    if draft is None:
        return options.speculative_method
    note = _memory_note(draft.spec, options.speculative_num_blocks or 0)
    return f"{options.speculative_method} {options.speculative_model}, {note}"


def _info(
    config: EngineConfig,
    spec: KVSpec,
    selection: Selection,
    *,
    path: Path,
    engine: Engine,
    draft: DraftWeights | None,
) -> EngineInfo:
    num_blocks = engine.cache.pool.total
    return EngineInfo(
        model=config.model.served_model_name or config.model.model,
        source=str(path),
        dtype=config.model.dtype,
        kv_cache_dtype=config.cache.kv_cache_dtype,
        device=config.model.device,
        backend=selection.name,
        not_taken=tuple(f"{name}: {', '.join(why)}" for name, why in selection.refused.items()),
        threads=config.model.threads or 1,
        num_blocks=num_blocks,
        block_tokens=spec.block_tokens,
        capacity_tokens=spec.tokens_held(num_blocks),
        bytes_per_token=spec.bytes_per_token,
        max_model_len=config.model.max_model_len or 0,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_live_sequences=engine.max_live,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        memory_note=_memory_note(spec, num_blocks),
        speculation_note=_speculation_note(config, draft),
    )
