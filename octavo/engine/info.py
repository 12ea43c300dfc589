"""What an engine chose at its start, as a value to show. Chooses nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.core.config import EngineConfig
from octavo.core.spec import KVSpec
from octavo.engine.draft_weights import DraftWeights
from octavo.engine.generation_defaults import GenerationDefaults

if TYPE_CHECKING:
    from octavo.engine.backend import Backend

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """Tokens, blocks and bytes as the names say.

    `max_live_sequences`: choices and beams of all requests that may run and wait at once.
    `not_taken`: better backends, each with why not. `defaults`: the sampling of requests that do
    not set it. `speculation_note`: how tokens are guessed, and with a draft model what computes it
    and what its K and V take.
    """

    model: str
    source: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    prefix_caching: bool
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
    speculation_note: str


def engine_info(
    config: EngineConfig,
    spec: KVSpec,
    backend: Backend,
    *,
    path: Path,
    max_live: int,
    defaults: GenerationDefaults,
    draft: DraftWeights | None,
) -> EngineInfo:
    """`config` is closed: it has its numerics and its sizes."""
    num_blocks = config.cache.num_blocks or 0
    not_taken = _refusals(backend)
    if draft is not None:
        not_taken += tuple(f"draft model, {each}" for each in _refusals(draft.backend))
    return EngineInfo(
        model=config.model.served_model_name or config.model.model,
        source=str(path),
        dtype=config.model.dtype,
        quantization=config.model.quantization,
        kv_cache_dtype=config.cache.kv_cache_dtype,
        prefix_caching=config.cache.enable_prefix_caching,
        device=config.model.device,
        backend=backend.numerics,
        not_taken=not_taken,
        threads=config.model.threads or 1,
        num_blocks=num_blocks,
        block_tokens=spec.block_tokens,
        capacity_tokens=spec.tokens_held(num_blocks),
        bytes_per_token=spec.bytes_per_token,
        max_model_len=config.model.max_model_len or 0,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_live_sequences=max_live,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        memory_note=_memory_note(spec, num_blocks),
        defaults=defaults,
        speculation_note=_speculation_note(config, draft),
    )


def _refusals(backend: Backend) -> tuple[str, ...]:
    return tuple(f"{name}: {', '.join(why)}" for name, why in backend.refused.items())


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
    where = f"{options.speculative_model} on {draft.backend.numerics}"
    return f"{options.speculative_method} {where}, {note}"
