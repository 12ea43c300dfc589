"""Mechanisms that can be switched off to see what they are worth, and for nothing else.

No front end offers these: an engine without them is never what anybody wants to serve with.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from octavo.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablations:
    """All on.

    kv_cache       off: every step computes each sequence from its first token
    tiled_scores   off: attention of plain torch makes all scores of a prompt before it adds up
    copy_on_write  off: a fork copies all blocks at once instead of sharing the full ones
    """

    kv_cache: bool = True
    tiled_scores: bool = True
    copy_on_write: bool = True

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Ablations:
        """Removes its own from flat options. Raises ConfigError for a value that is no bool."""
        own = {f.name: options.pop(f.name) for f in fields(cls) if f.name in options}
        for name, value in own.items():
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be bool", param=name)
        return cls(**own)

    def check(self, *, attention_backend: str, prefix_caching: bool) -> None:
        """Refuse what would measure something else. Raises ConfigError."""
        if not self.tiled_scores and attention_backend != "torch":
            raise ConfigError(
                "tiled_scores can be off on attention_backend torch only", param="tiled_scores"
            )
        for name in ("kv_cache", "copy_on_write"):
            if not getattr(self, name) and prefix_caching:
                raise ConfigError(
                    f"{name} can be off only without enable_prefix_caching: a cached prefix is "
                    "kept and shared",
                    param=name,
                )
