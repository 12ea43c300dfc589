"""Which token ids a load may draw: those of the model's vocabulary that are not special.

Reads a model's files but never its weights.
"""

from __future__ import annotations

from octavo.core.errors import ConfigError


def plain_ids(model: str, *, skip_tokenizer: bool = False) -> list[int]:
    """Ids below both vocabularies, without control tokens and without what ends a generation.

    `skip_tokenizer`: the model has none, so only its config says what is special. Raises as
    loading the model would, and ConfigError if no id is left.
    """
    from octavo.compute.hub import resolve
    from octavo.compute.weights import open_source
    from octavo.core.gguf_header import read_header
    from octavo.engine.open_tokenizer import open_tokenizer

    path = resolve(model)
    shape = open_source(path).config()
    metadata = None if path.is_dir() else read_header(path).metadata
    tokenizer = None if skip_tokenizer else open_tokenizer(path, metadata)
    size, special = shape.vocab_size, set(shape.eos_token_ids)
    if tokenizer is not None:
        size = min(size, tokenizer.vocab_size)
        special |= {*tokenizer.special_ids, *tokenizer.eos_ids}
    found = [i for i in range(size) if i not in special]
    if not found:
        raise ConfigError(
            "every token of this model's vocabulary is special, so there is nothing to draw a "
            "prompt from; use another model",
            param="model",
        )
    return found
