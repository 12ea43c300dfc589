"""Octavo: an LLM inference engine whose KV cache you can see, measure and price.

Public names load on first use, so that `import octavo.core` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.core.config import EngineConfig
    from octavo.core.sampling import SamplingParams
    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.chat_options import ChatOptions
    from octavo.engine.llm import LLM
    from octavo.engine.tools import Tool
    from octavo.engine.types import GenerateRequest

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "AsyncEngine",
    "ChatOptions",
    "EngineConfig",
    "GenerateRequest",
    "SamplingParams",
    "Tool",
]

_HOMES = {
    "LLM": "octavo.engine.llm",
    "AsyncEngine": "octavo.engine.async_engine",
    "ChatOptions": "octavo.engine.chat_options",
    "EngineConfig": "octavo.core.config",
    "GenerateRequest": "octavo.engine.types",
    "SamplingParams": "octavo.core.sampling",
    "Tool": "octavo.engine.tools",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module octavo has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
