"""The vocabulary in a GGUF file's metadata, as checked values.

Owns the keys `tokenizer.ggml.*` and their bounds: lists of the right lengths, ids inside the
vocabulary. Knows no tokenizer algorithm and reads no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octavo.core.errors import ModelFileError

MAX_VOCAB = 1 << 20
MAX_TOKEN_CHARS = 1 << 12
PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Vocabulary:
    """Tokens by id and what kind each one is.

    Raises ModelFileError naming the key that is missing or damaged.
    """

    __slots__ = ("_metadata", "kinds", "tokens")

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens = self._strings("tokens", MAX_VOCAB)
        if len(set(self.tokens)) != len(self.tokens):
            raise damaged(PREFIX + "tokens", "names a token twice")
        self.kinds = self._kinds()

    def ids_by_token(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def has(self, name: str) -> bool:
        return self._metadata.get(PREFIX + name) is not None

    def asks_for(self, name: str) -> bool:
        """There and neither false nor empty."""
        return bool(self._metadata.get(PREFIX + name))

    def unknown_id(self) -> int | None:
        """The id of the token for what cannot be spelled, as stated or else as marked."""
        stated = self.token_id("unknown")
        if stated is not None or UNKNOWN not in self.kinds:
            return stated
        return self.kinds.index(UNKNOWN)

    def merges(self) -> list[tuple[str, str]]:
        """Pairs, the first to be merged first; both and their union are in the vocabulary."""
        known = set(self.tokens)
        pairs: list[tuple[str, str]] = []
        for place, line in enumerate(self._strings("merges", 2 * MAX_VOCAB)):
            left, space, right = line.partition(" ")
            if not left or not space or not right or " " in right:
                raise damaged(PREFIX + "merges", f"entry {place} is not two tokens and one space")
            if left not in known or right not in known or left + right not in known:
                raise damaged(PREFIX + "merges", "names a token that is not in the vocabulary")
            pairs.append((left, right))
        return pairs

    def scores(self) -> list[float]:
        """One finite number for each token; a higher one is preferred."""
        key = PREFIX + "scores"
        scores = self._metadata.get(key)
        if not isinstance(scores, list | tuple) or len(scores) != len(self.tokens):
            raise damaged(key, f"does not have one entry for each of the {len(self.tokens)} tokens")
        if not all(isinstance(score, float) and math.isfinite(score) for score in scores):
            raise damaged(key, "has an entry that is not a finite number")
        return list(scores)

    def token_id(self, role: str) -> int | None:
        """The id in `<role>_token_id`, if the file has one."""
        key = f"{PREFIX}{role}_token_id"
        value = self._metadata.get(key)
        if value is None:
            return None
        n_tokens = len(self.tokens)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n_tokens:
            raise damaged(key, f"is not the id of one of the {n_tokens} tokens")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(PREFIX + name, default)
        if not isinstance(value, bool):
            raise damaged(PREFIX + name, "is neither true nor false")
        return value

    def _strings(self, name: str, limit: int) -> list[str]:
        key = PREFIX + name
        values = self._metadata.get(key)
        if not isinstance(values, list | tuple) or not values:
            raise damaged(key, "is missing or not a list of strings")
        if len(values) > limit:
            raise damaged(key, f"has {len(values)} entries; the limit is {limit}")
        for place, value in enumerate(values):
            if not isinstance(value, str) or len(value) > MAX_TOKEN_CHARS:
                raise damaged(
                    key, f"entry {place} is not a string of at most {MAX_TOKEN_CHARS} characters"
                )
        return list(values)

    def _kinds(self) -> list[int]:
        key = PREFIX + "token_type"
        kinds = self._metadata.get(key)
        if not isinstance(kinds, list | tuple) or len(kinds) != len(self.tokens):
            raise damaged(key, f"does not have one entry for each of the {len(self.tokens)} tokens")
        if not all(isinstance(kind, int) and 0 <= kind <= BYTE for kind in kinds):
            raise damaged(key, "has an entry that is not a token type from 0 to 6")
        return list(kinds)


def damaged(key: str, what: str) -> ModelFileError:
    return ModelFileError(f"the GGUF file's {key} {what}", param=key)
