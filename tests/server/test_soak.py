"""Most of a minute of mixed traffic with a tiny model: nothing grows, nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import soak
from octavo.engine.async_engine import AsyncEngine
from tests.engine.tiny import DEFAULTS, assert_empty
from tests.server.live import MODEL, talker

SECONDS = 45.0
GROWTH_BYTES = 24 << 20  # the allocator's own movement is some MiB


@pytest.mark.timeout(240)
def test_soak(tmp_path: Path) -> None:
    talker(tmp_path)
    sizes = {
        "max_model_len": 512,
        "num_blocks": 80,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 64,
    }
    engine = AsyncEngine.load(str(tmp_path), served_model_name=MODEL, **{**DEFAULTS, **sizes})
    found = soak(engine, seconds=SECONDS, longest=200)
    assert not found.wrong
    assert set(found.ends) == {"whole", "streamed", "cut", "bad", "late"}
    assert min(found.ends.values()) > 5
    assert found.stats.evictions > 0
    assert_empty(engine._engine)
    assert found.stats.free_blocks + found.stats.cached_blocks == found.stats.total_blocks
    assert found.after.rss_bytes - found.warm.rss_bytes < GROWTH_BYTES
    assert found.after.descriptors <= found.before.descriptors + 2
    assert found.after.threads <= found.before.threads + 4  # threads that prepare start on demand
