"""`octavo plan --server` against a real engine: what it plans is what the server keeps."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from octavo.cli.plan_model import open_model
from octavo.cli.plan_server import observe
from octavo.compute.native.library import NotBuilt, usable_isas
from octavo.plan.live import beside
from tests.families import tiny_family
from tests.server.live import serving, talker

# 8 bits need the native kernels, and those weights of 16.
OPTIONS = (
    {"kv_cache_dtype": "float32"},
    {"kv_cache_dtype": "int8", "dtype": "bfloat16"},
    {"kv_cache_dtype": "fp8", "dtype": "bfloat16"},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_planned_and_observed_bytes_are_equal(tmp_path: Path, options: dict[str, str]) -> None:
    if "dtype" in options:
        try:
            usable_isas()
        except NotBuilt:
            pytest.skip("the kernels were not built: no C++ compiler")
    talker(tmp_path)
    body = {"model": "tiny", "prompt": "once upon a time " * 8, "max_tokens": 5, "temperature": 0}
    with serving(tmp_path, **options) as (_, url):
        for _ in range(2):
            assert httpx.post(f"{url}/v1/completions", json=body).status_code == 200
        seen = observe(url)
    model = open_model(str(tmp_path))
    assert model.geometry.early_token_bytes(seen.fmt()) == seen.token_bytes
    assert seen.capacity_tokens == seen.num_blocks * seen.block_tokens
    assert seen.requests == 2
    assert seen.hit_rate is not None
    assert 0 < seen.hit_rate < 0.5
    assert seen.lost_per_request is not None
    assert 0 <= seen.lost_per_request < seen.block_tokens
    rows = {row[0]: row[1:] for row in beside(model, seen).rows}
    assert rows["bytes a token"][0] == rows["bytes a token"][1]
    assert rows["room"][0] == rows["room"][1]


def test_groups_share_the_blocks(tmp_path: Path) -> None:
    """The tokens that fit are fewer than blocks times their size."""
    tiny_family(tmp_path, "gemma2")
    with serving(tmp_path, skip_tokenizer_init=True) as (_, url):
        seen = observe(url)
    model = open_model(str(tmp_path))
    assert seen.capacity_tokens is not None
    assert seen.capacity_tokens < seen.num_blocks * seen.block_tokens
    assert model.geometry.early_token_bytes(seen.fmt()) == seen.token_bytes
