"""Checked reading of a mapping that came from a model file. Knows types and limits, no meanings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from octavo.core.errors import ModelFileError

REQUIRED: Final = object()
MAX_TOKENS = 1 << 28  # any count of positions
MAX_SIZE = 1 << 24  # any width, vocabulary or number of heads or layers


class Fields:
    """`values` as typed, bounded fields, each name led by `prefix`. `where` names the file.

    A field that is absent or null takes the default; without a default it is refused.
    """

    __slots__ = ("_prefix", "_values", "_where")

    def __init__(self, values: Mapping[str, Any], where: str, *, prefix: str = "") -> None:
        self._values = values
        self._where = where
        self._prefix = prefix

    def has(self, name: str) -> bool:
        """Present and not null."""
        return self._values.get(self._prefix + name) is not None

    def size(self, name: str, default: Any = REQUIRED, *, limit: int = MAX_SIZE) -> int:
        """A whole number from 1 to `limit`."""
        value = self._get(name, default)
        if type(value) is not int or not 1 <= value <= limit:
            raise self.error(name, f"must be a whole number from 1 to {limit}")
        return value

    def count(self, name: str, default: Any = REQUIRED, *, limit: int = MAX_SIZE) -> int:
        """A whole number from 0 to `limit`."""
        value = self._get(name, default)
        if type(value) is not int or not 0 <= value <= limit:
            raise self.error(name, f"must be a whole number from 0 to {limit}")
        return value

    def number(self, name: str, default: Any = REQUIRED) -> float:
        """A finite number above zero."""
        value = self._get(name, default)
        # Written so that NaN fails and an int too large for a float never becomes one.
        if type(value) not in (int, float) or not 0 < value <= 1e30:
            raise self.error(name, "must be a finite number above zero")
        return float(value)

    def numbers(self, name: str, *, n: int) -> tuple[float, ...]:
        """A list of `n` finite numbers above zero."""
        values = self._get(name, REQUIRED)
        if not isinstance(values, list) or len(values) != n:
            raise self.error(name, f"must be a list of {n} numbers")
        if not all(type(value) in (int, float) and 0 < value <= 1e30 for value in values):
            raise self.error(name, "must hold finite numbers above zero")
        return tuple(float(value) for value in values)

    def flag(self, name: str, default: Any = REQUIRED) -> bool:
        value = self._get(name, default)
        if type(value) is not bool:
            raise self.error(name, "must be true or false")
        return value

    def text(self, name: str, default: Any = REQUIRED) -> str:
        value = self._get(name, default)
        if type(value) is not str or len(value) > 256:
            raise self.error(name, "must be a short text")
        return value

    def ids(self, name: str, *, vocab_size: int) -> tuple[int, ...]:
        """One token id or a list of them, each inside the vocabulary. Absent: none."""
        value = self._get(name, ())
        ids = value if isinstance(value, list | tuple) else [value]
        if len(ids) > 1024 or not all(type(i) is int and 0 <= i < vocab_size for i in ids):
            raise self.error(name, f"must be a token id below {vocab_size} or a list of them")
        return tuple(dict.fromkeys(ids))

    def table(self, name: str) -> Fields | None:
        """A nested object, or None where there is none."""
        value = self._get(name, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "must be an object")
        return Fields(value, f"{self._where}: {self._prefix}{name}")

    def only(self, name: str, allowed: Any) -> None:
        """Refuse a field that is there with a value other than `allowed`."""
        value = self._get(name, None)
        if value is not None and (type(value) is not type(allowed) or value != allowed):
            raise self.error(name, f"must be absent or {allowed}")

    def absent(self, name: str, why: str) -> None:
        """Refuse a field that is there at all, unless it is null."""
        if self._get(name, None) is not None:
            raise self.error(name, f"must be absent or null ({why})")

    def error(self, name: str, what: str) -> ModelFileError:
        full = self._prefix + name
        return ModelFileError(f"{self._where}: {full} {what}{self._shown(name)}", param=full)

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(self._prefix + name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.error(name, "is missing")
        return default

    def _shown(self, name: str) -> str:
        """The value, where it is short and plain."""
        value = self._values.get(self._prefix + name)
        if isinstance(value, str):
            return f", not {value[:61] + '...' if len(value) > 64 else value!a}"
        if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
            return f", not {value}" if not isinstance(value, float) or math.isfinite(value) else ""
        return ""
