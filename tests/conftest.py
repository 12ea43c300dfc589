"""Fixtures that more than one layer's tests use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    """The default model's GGUF file: fetched once, then taken from the local cache."""
    from octavo.compute import hub

    return Path(hub.resolve("smollm2"))
