"""A draft model on its way into the engine: found, compared with the target, loaded.

Owns what the two must have in common, the vocabulary, and what the draft model chooses for itself:
its backend and numerics. Sizes no pool and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.compute.hub import resolve
from octavo.compute.progress import Progress
from octavo.compute.weights import WeightSource, open_source
from octavo.core.config import EngineConfig, Machine, resolve_numerics
from octavo.core.errors import ConfigError
from octavo.core.model_config import ModelConfig
from octavo.core.spec import KVSpec
from octavo.engine.backend import Backend, choose, load_weights
from octavo.engine.open_tokenizer import open_tokenizer
from octavo.engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.compute.executor import Executor


@dataclass(frozen=True, slots=True)
class DraftWeights:
    """`config` is the engine's with the draft model's own numerics. `n_positions`: the longest
    sequence the draft model can go on with, in tokens."""

    path: Path
    source: WeightSource
    config: EngineConfig
    backend: Backend
    spec: KVSpec
    n_positions: int

    def load(self, progress: Progress) -> None:
        load_weights(
            self.backend,
            self.config,
            self.source,
            title=f"Loading draft {self.path.name}",
            progress=progress,
        )

    def executor(self, num_blocks: int, *, max_num_seqs: int) -> Executor:
        """Once, after `load`; takes the memory of K and V. Steps have at most `max_num_seqs`
        rows."""
        config = replace(
            self.config,
            cache=replace(self.config.cache, num_blocks=num_blocks),
            scheduler=replace(self.config.scheduler, max_num_seqs=max_num_seqs),
        )
        return self.backend.executor(config, self.spec)


def open_draft(
    config: EngineConfig,
    machine: Machine,
    *,
    target: ModelConfig,
    tokenizer: Tokenizer | None,
    progress: Progress,
) -> DraftWeights | None:
    """Open speculative_model, if there is one. `config` is as given: numerics are still `auto`.

    Raises ConfigError if its vocabulary is not the target's, ModelNotFound or ModelFileError.
    """
    name = config.speculation.speculative_model
    if name is None:
        return None
    path = resolve(name, progress=progress)
    source = open_source(path)
    shape = source.config()
    check_sizes(target, shape)
    if tokenizer is not None:
        check_tokens(tokenizer, open_tokenizer(path, source.metadata()))
    n_positions = min(config.model.max_model_len or target.max_position, shape.max_position)
    config = _own(config, n_positions)
    backend = choose(config, source)
    config = resolve_numerics(config, machine, native=backend.native)
    spec = shape.kv_spec(config.cache.kv_cache_dtype, config.cache.block_size)
    return DraftWeights(path, source, config, backend, spec, n_positions)


def _own(config: EngineConfig, n_positions: int) -> EngineConfig:
    """What was asked of the target and need not suit the draft model is left to it: K and V in the
    dtype `auto` takes, and kernels where they can serve it."""
    plain = config.model.attention_backend == "torch"
    backend = "torch" if plain else "auto"
    model = replace(
        config.model, attention_backend=backend, max_model_len=n_positions, quantization=None
    )
    return replace(config, model=model, cache=replace(config.cache, kv_cache_dtype="auto"))


def check_sizes(target: ModelConfig, draft: ModelConfig) -> None:
    """Raises ConfigError unless both models have equally many tokens."""
    if draft.vocab_size != target.vocab_size:
        raise ConfigError(
            f"speculative_model has {draft.vocab_size} tokens in its vocabulary and the model has "
            f"{target.vocab_size}; give a draft model of the same family",
            param="speculative_model",
        )


def check_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """Raises ConfigError unless each id stands for the same bytes in both."""
    for token in range(max(target.vocab_size, draft.vocab_size)):
        # As the first of a text: those bytes are not kept.
        if target.token_bytes(token, first=True) != draft.token_bytes(token, first=True):
            raise ConfigError(
                f"token {token} is not the same text in speculative_model as in the model; give a "
                "draft model with the same tokenizer",
                param="speculative_model",
            )
