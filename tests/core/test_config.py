"""Options: named, bounded, resolved by a pure function."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.config import (
    EngineConfig,
    Machine,
    resolve_length,
    resolve_numerics,
    resolve_sizes,
)
from octavo.core.errors import ConfigError
from octavo.core.policies import MAX_LENGTH, PAGED
from octavo.core.spec import Full, Group, KVSpec, Sliding

MACHINE = Machine(native_bf16=False, available_bytes=1 << 30, threads=2)


def test_defaults() -> None:
    config = EngineConfig.of("smollm2")
    assert config.cache.block_size == 16
    assert config.scheduler.max_num_batched_tokens == 2048
    assert config.scheduler.max_num_seqs == 128
    assert config.policies().allocator is PAGED


def test_policies_follow_options() -> None:
    config = EngineConfig.of(
        "m", allocator="max_length", enable_chunked_prefill=False, static_batching=True,
        share_in_flight=False,
    )  # fmt: skip
    policies = config.policies()
    assert policies.allocator is MAX_LENGTH
    assert not policies.splits
    assert not policies.continuous
    assert not policies.share_in_flight


@pytest.mark.parametrize(
    ("options", "param", "says"),
    [
        ({"max_num_seq": 3}, "max_num_seq", "did you mean max_num_seqs?"),
        ({"block_size": 0}, "block_size", "at least 1"),
        ({"block_size": True}, "block_size", "must be int"),
        ({"block_size": "16"}, "block_size", "must be int"),
        ({"dtype": "fp4"}, "dtype", "one of auto, float32"),
        ({"num_blocks": -1}, "num_blocks", "at least 1"),
        ({"skip_tokenizer_init": 1}, "skip_tokenizer_init", "must be bool"),
        ({"allocator": "buddy"}, "allocator", "one of paged"),
    ],
)
def test_nonsense_is_refused_by_name(options: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")) as caught:
        EngineConfig.of("m", **options)
    assert caught.value.param == param


def test_the_length_needs_no_memory_to_be_refused() -> None:
    assert resolve_length(EngineConfig.of("m"), max_position=512) == 512
    assert resolve_length(EngineConfig.of("m", max_model_len=64), max_position=512) == 64
    with pytest.raises(ConfigError, match="max_model_len 513 exceeds the 512 positions") as caught:
        resolve_length(EngineConfig.of("m", max_model_len=513), max_position=512)
    assert caught.value.param == "max_model_len"


def test_auto_dtype_follows_the_machine() -> None:
    config = EngineConfig.of("m")
    assert resolve_numerics(config, MACHINE).model.dtype == "float32"
    bf16 = Machine(native_bf16=True, available_bytes=1, threads=1)
    resolved = resolve_numerics(config, bf16)
    assert (resolved.model.dtype, resolved.cache.kv_cache_dtype) == ("bfloat16", "bfloat16")
    assert resolve_numerics(config, bf16, native=True).cache.kv_cache_dtype == "float16"
    forced = resolve_numerics(EngineConfig.of("m", dtype="float32"), bf16)
    assert forced.model.dtype == "float32"


def test_more_seats_than_budget_is_refused() -> None:
    config = EngineConfig.of("m", max_num_seqs=64, max_num_batched_tokens=32)
    with pytest.raises(ConfigError, match="max_num_seqs must not exceed"):
        resolve_numerics(config, MACHINE)


def spec_of(block_bytes: int) -> KVSpec:
    """One group of full layers with blocks of 16 tokens and that many bytes."""
    return KVSpec((Group(Full(), (0,), 1, block_bytes // 128, "float32"),), 16)


def test_the_pool_takes_half_of_what_is_left() -> None:
    config = EngineConfig.of("m", max_num_seqs=100)
    sized = resolve_sizes(config, MACHINE, spec=spec_of(1 << 20), max_position=8192)
    assert sized.cache.num_blocks == 512
    assert sized.model.max_model_len == 8192


def test_the_pool_takes_no_more_than_all_requests_at_full_length() -> None:
    config = EngineConfig.of("m", max_num_seqs=2, max_model_len=100)
    sized = resolve_sizes(config, MACHINE, spec=spec_of(1024), max_position=8192)
    assert sized.cache.num_blocks == 2 * 7
    assert sized.cache.kv_cache_memory_bytes == 14 * 1024


@pytest.mark.parametrize(("allocator", "sliding_blocks"), [("paged", 8), ("max_length", 63)])
def test_windows_make_the_largest_useful_pool_smaller(allocator: str, sliding_blocks: int) -> None:
    """1,000 tokens: 63 full blocks, and under a window of 64 in steps of 48 seven, and one more.
    A reserving allocator gives none of them back."""
    full, sliding = (Group(kind, (0,), 1, 8, "float32") for kind in (Full(), Sliding(64)))
    spec = KVSpec((full, sliding), 16)
    options = {"max_num_seqs": 2, "max_model_len": 1000, "max_num_batched_tokens": 48}
    config = EngineConfig.of("m", **options, allocator=allocator)
    sized = resolve_sizes(config, MACHINE, spec=spec, max_position=8192)
    assert sized.cache.num_blocks == 2 * (63 + sliding_blocks)


def test_a_draft_models_pool_is_part_of_the_same_memory() -> None:
    """512 MiB for blocks of 1 MiB, and of a quarter of that: eight long requests, or as many."""
    specs: dict[str, Any] = {
        "spec": spec_of(1 << 20),
        "draft": spec_of(1 << 18),
        "max_position": 8192,
    }

    def sized(**options: Any) -> EngineConfig:
        draft = {"speculative_method": "draft_model", "speculative_model": "d"}
        return resolve_sizes(EngineConfig.of("m", **draft, **options), MACHINE, **specs)

    few = sized(max_model_len=160)
    assert few.speculation.speculative_num_blocks == 8 * 10
    assert few.cache.num_blocks == 512 - 80 // 4
    many = sized()
    assert many.speculation.speculative_num_blocks == (512 << 20) // (5 << 18)
    assert many.cache.kv_cache_memory_bytes is not None
    assert many.cache.kv_cache_memory_bytes <= 512 << 20
    given = sized(speculative_num_blocks=7, num_blocks=20)
    assert given.cache.kv_cache_memory_bytes == (20 << 20) + 7 * (1 << 18)
    for options, param in (
        ({"speculative_num_blocks": 4000}, "kv_cache_memory_bytes"),
        ({"speculative_num_blocks": 4000, "num_blocks": 100}, "num_blocks"),
    ):
        with pytest.raises(ConfigError) as caught:
            sized(**options)
        assert caught.value.param == param


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_model_len": 9000}, "max_model_len"),
        ({"kv_cache_memory_bytes": 10}, "kv_cache_memory_bytes"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict[str, Any], param: str) -> None:
    config = EngineConfig.of("m", **options)
    with pytest.raises(ConfigError) as caught:
        resolve_sizes(config, MACHINE, spec=spec_of(1024), max_position=8192)
    assert caught.value.param == param


def test_every_option_has_a_help_text_and_a_type() -> None:
    for option in EngineConfig.options():
        assert option.help
        assert option.type.split(" | ")[0] in {"str", "int", "bool"}
