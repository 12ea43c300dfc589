"""A tiny engine that the benchmarks measure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.engine.build import Built
from tests.checkpoints import tiny_llama
from tests.engine.tiny import VOCAB, assert_empty, built

PLAIN_IDS = range(3, VOCAB)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("bench")
    tiny_llama(folder, vocab_size=VOCAB)
    return folder


@pytest.fixture(scope="session")
def shared_built(tiny_folder: Path) -> Built:
    return built(tiny_folder, skip_tokenizer_init=True)


@pytest.fixture
def tiny(shared_built: Built) -> Iterator[Built]:
    """With an empty cache before, and nothing left running after."""
    shared_built.engine.clear_cache()
    yield shared_built
    assert_empty(shared_built.engine)
