"""/v1/messages with a real engine behind: counts, the cache and what the usage says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.engine.tiny import assert_empty
from tests.server.live import MODEL, AsyncEngine, serving, talker

WORDS = "the quick brown fox jumps over the lazy dog and the cat sat on the mat. " * 3
KEEP = {"cache_control": {"type": "ephemeral"}}
KEEP_LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@dataclass
class House:
    engine: AsyncEngine
    client: anthropic.Anthropic
    folder: Path

    def ask(self, *turns: str, **fields: Any) -> anthropic.types.Usage:
        """The usage of a short answer, which has added up."""
        roles = ["user", "assistant"] * len(turns)
        messages = [
            {"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)
        ]
        body: dict[str, Any] = {"model": MODEL, "messages": messages, **fields}
        used = self.client.messages.create(max_tokens=4, **body).usage
        counted = self.client.messages.count_tokens(**body)
        assert used.cache_read_input_tokens is not None
        assert used.cache_creation_input_tokens is not None
        total = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
        assert total == counted.input_tokens
        assert_empty(self.engine._engine)
        return used


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[House]:
    with (
        serving(folder, **options) as (engine, url),
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=20) as client,
    ):
        yield House(engine, client, folder)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder: Path = tmp_path_factory.mktemp("anthropic")
    talker(folder, max_position_embeddings=2048)
    with running(folder) as found:
        yield found


def agent(nonce: str, name: str) -> list[dict[str, Any]]:
    """The system prompt of a coding agent."""
    return [
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"},
        {"type": "text", "text": f"{name}: {WORDS}", **KEEP},
    ]


def test_the_agents_nonce_does_not_defeat_the_cache(house: House) -> None:
    first = house.ask("hello", system=agent("a1b2c", "one"))
    assert first.cache_read_input_tokens == 0
    second = house.ask("hello", system=agent("d3e4f", "one"))
    prompt = second.input_tokens + second.cache_read_input_tokens
    assert second.cache_read_input_tokens == prompt // 16 * 16
    assert second.cache_creation_input_tokens == 0


def test_keeping_the_header_defeats_it(house: House) -> None:
    with running(house.folder, keep_agent_headers=True) as other:
        for nonce in ("a1b2c", "d3e4f"):
            used = other.ask("hello", system=agent(nonce, "two"))
            # Up to the nonce they are the same.
            assert (used.cache_creation_input_tokens or 0) > (used.cache_read_input_tokens or 0)


def test_creation_is_what_was_asked_to_be_kept_and_then_it_is_read(house: House) -> None:
    system = [
        {"type": "text", "text": f"long: {WORDS}", **KEEP_LONG},
        {"type": "text", "text": f"short: {WORDS}", **KEEP},
    ]
    tail = f"and not kept: {WORDS}"
    first = house.ask(tail, system=system)
    made = first.cache_creation
    assert made is not None
    assert first.cache_read_input_tokens == 0
    assert made.ephemeral_1h_input_tokens > 30
    assert made.ephemeral_5m_input_tokens > 30
    assert first.input_tokens > 30
    again = house.ask("something else", system=system)
    assert again.cache_read_input_tokens is not None
    kept = made.ephemeral_1h_input_tokens + made.ephemeral_5m_input_tokens
    assert again.cache_read_input_tokens >= kept // 16 * 16  # whole blocks, as always
    assert house.ask(tail, system=system).cache_creation_input_tokens == 0


def test_without_cache_control_nothing_counts_as_creation(house: House) -> None:
    used = house.ask(f"implicit: {WORDS}")
    assert used.cache_creation_input_tokens == 0
    assert used.input_tokens > 30
    assert (house.ask(f"implicit: {WORDS}").cache_read_input_tokens or 0) > 30


def test_the_second_turn_reads_the_first_turns_prompt(house: House) -> None:
    first = house.ask(f"turns: {WORDS}", tools=[WEATHER])
    second = house.ask(f"turns: {WORDS}", "sat", "and then?", tools=[WEATHER])
    assert (second.cache_read_input_tokens or 0) >= first.input_tokens // 16 * 16


def test_tools_are_counted(house: House) -> None:
    clock = {**WEATHER, "name": "clock", "description": "tells the time"}
    with_tools = house.ask("hello", tools=[{**clock, **KEEP}])
    without = house.ask("hello", tools=[clock], tool_choice={"type": "none"})
    plain = house.ask("hello")
    assert with_tools.cache_creation_input_tokens
    assert sum_of(with_tools) > sum_of(without) == sum_of(plain)


def sum_of(used: anthropic.types.Usage) -> int:
    read, created = used.cache_read_input_tokens, used.cache_creation_input_tokens
    return used.input_tokens + (read or 0) + (created or 0)
