"""A draft model on its way into the engine: found, compared with the target, loaded.

Owns what the two must have in common: the vocabulary. Sizes no pool and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.compute.hub import resolve
from octavo.compute.progress import Progress
from octavo.compute.weights import open_source
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError
from octavo.core.model_config import ModelConfig
from octavo.core.spec import KVSpec
from octavo.engine.open_tokenizer import open_tokenizer
from octavo.engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from octavo.compute.decoder import Decoder


@dataclass(frozen=True, slots=True)
class DraftWeights:
    """`n_positions`: the longest sequence the draft model can go on with, in tokens."""

    decoder: Decoder
    spec: KVSpec
    n_positions: int


def load_draft(
    config: EngineConfig,
    *,
    target: ModelConfig,
    tokenizer: Tokenizer | None,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
) -> DraftWeights | None:
    """Load speculative_model, if there is one. `config` has its numerics resolved.

    Raises ConfigError if its vocabulary is not the target's, ModelNotFound or ModelFileError.
    """
    name = config.speculation.speculative_model
    if name is None:
        return None
    from octavo.compute.load import load_decoder

    path = resolve(name, progress=progress)
    source = open_source(path)
    shape = source.config()
    check_sizes(target, shape)
    if tokenizer is not None:
        check_tokens(tokenizer, open_tokenizer(path))
    n_positions = min(config.model.max_model_len or target.max_position, shape.max_position)
    n_bytes = source.total_bytes()
    with progress.stage(f"Loading draft {path.name}", total_bytes=n_bytes) as advance:
        decoder = load_decoder(
            source,
            dtype=dtype,
            device=device,
            n_positions=n_positions,
            progress=lambda done, total: advance(n_bytes * done // total),
        )
    spec = shape.kv_spec(config.cache.kv_cache_dtype, config.cache.block_size)
    return DraftWeights(decoder, spec, n_positions)


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
