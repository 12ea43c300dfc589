"""The engine that a benchmark measures in this process, and what of its choices is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.compute.progress import Progress, TerminalProgress
from octavo.core.config import EngineConfig
from octavo.engine.build import Built, build
from octavo.engine.info import EngineInfo

TOLD = (
    *("model", "backend", "dtype", "kv_cache_dtype", "threads", "num_blocks", "block_tokens"),
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens"),
)


def open_built(
    model: str, options: Mapping[str, Any], *, progress: Progress | None = None
) -> Built:
    """Load `model`. Raises ConfigError, ModelNotFound or ModelFileError."""
    config = EngineConfig.of(model, **options)
    return build(config, progress=TerminalProgress() if progress is None else progress)


def told(info: EngineInfo) -> dict[str, Any]:
    """What decides its speed, by name."""
    return {name: getattr(info, name) for name in TOLD}
