"""The engine in this process, as the commands use it. Imports it only when asked to open one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.types import Chunk, GenerateRequest

DEFAULT_MODEL = "smollm2"


class LocalInfo(Protocol):
    """What the commands print of a loaded engine. Sizes in tokens or as named."""

    @property
    def model(self) -> str: ...
    @property
    def defaults(self) -> GenerationDefaults: ...


class LocalEngine(Protocol):
    """A loaded model that streams one request at a time."""

    @property
    def info(self) -> LocalInfo: ...
    def stream(self, request: GenerateRequest) -> Iterator[Chunk]: ...
    def close(self) -> None: ...


def open_engine(model: str, options: dict[str, Any]) -> LocalEngine:
    """Load `model`. Raises ConfigError, ModelNotFound or ModelFileError."""
    from octavo.engine.llm import LLM

    return LLM(model, **options)
