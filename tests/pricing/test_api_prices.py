"""Price data: our file, LiteLLM's, the package; what wins, and what has no price."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from octavo.core.errors import ConfigError
from octavo.pricing.api_prices import Layers, Terms, open_prices
from octavo.pricing.api_rates import Rates
from octavo.pricing.genai_prices_data import open_genai_prices
from octavo.pricing.price_file import MAX_FILE_BYTES, open_price_file


def day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def terms(model: str, when: str = "2026-11-20", prompt: int = 1000, **rest: str) -> Terms:
    return Terms(model, day(when), prompt, **rest)


def saved(tmp_path: Path, data: Any, name: str = "prices.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_own_format_with_history_and_tier(tmp_path: Path) -> None:
    old = {"input": 4, "output": 20, "read": 0.4, "above": {"tokens": 100, "input": 8}}
    new = {"input": 2, "output": 10, "from": "2026-06-01"}
    path = saved(tmp_path, {"date": "2026-11-01", "models": {"m": [new, old]}})
    prices = open_price_file(path)
    assert (prices.source, prices.date) == ("prices.json", "2026-11-01")
    assert prices.rates(terms("m")) == Rates(input=2, output=10)
    before = prices.rates(terms("m", "2026-05-31", 100))
    assert before == Rates(input=4, output=20, read=0.4)
    assert prices.rates(terms("m", "2026-05-31", 101)) == Rates(input=8, output=20, read=0.4)
    assert (
        prices.rates(terms("m-20260101"))
        == prices.rates(terms("m[1m]"))
        == Rates(input=2, output=10)
    )
    assert prices.rates(terms("m2")) is None


def test_toml(tmp_path: Path) -> None:
    text = 'date = 2026-11-01\n[models."a.b"]\ninput = 1\noutput = 2\nfrom = 2026-01-01\n'
    prices = open_price_file(saved(tmp_path, text, "prices.toml"))
    assert prices.rates(terms("a.b")) == Rates(input=1, output=2)
    assert prices.rates(terms("a.b", "2025-12-31")) is None


def test_litellms_file(tmp_path: Path) -> None:
    entry = {
        "input_cost_per_token": 3e-6,
        "output_cost_per_token": 1.5e-5,
        "cache_read_input_token_cost": 3e-7,
        "cache_creation_input_token_cost": 3.75e-6,
        "cache_creation_input_token_cost_above_1hr": 6e-6,
        "input_cost_per_token_above_200k_tokens": 6e-6,
        "search_context_cost_per_query": {"search_context_size_medium": 0.01},
    }
    data = {"sample_spec": {"input_cost_per_token": "text"}, "anthropic/m": entry, "x": 3}
    prices = open_price_file(saved(tmp_path, data))
    found = prices.rates(terms("m"))
    assert found is not None
    assert found.cost(input=10**6, write_5m=10**6, write_1h=10**6, read=10**6, searches=2) == (
        pytest.approx((3.0, 3.75, 6.0, 0.3, 0.0, 0.02))
    )
    long = prices.rates(terms("m", prompt=200_001))
    assert long is not None
    assert (long.input, long.output) == (pytest.approx(6), pytest.approx(15))


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("{", "neither"),
        ("[" * 100_000, "neither"),
        ("[]", "object"),
        ("{}", "no prices"),
        ({"models": {"m": 3}}, "object"),
        ({"models": {"m": {"input": 1}}}, "output"),
        ({"models": {"m": {"input": 1, "output": -1}}}, "output"),
        ({"models": {"m": {"input": True, "output": 1}}}, "input"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "input"),
        ({"models": {"m": {"input": 10**400, "output": 1}}}, "input"),
        ({"m": {"input_cost_per_token": 10**400, "output_cost_per_token": 1}}, "input"),
        ({"models": {"m": {"input": 1, "output": 1, "cached": 2}}}, "cached"),
        ({"models": {"m": {"input": 1, "output": 1, "from": "soon"}}}, "from"),
        ({"models": {"m": {"input": 1, "output": 1, "above": {"input": 2}}}}, "tokens"),
        ({"models": {}, "date": "soon"}, "date"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, data: Any, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        open_price_file(saved(tmp_path, data))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        open_price_file(tmp_path / "none.json")
    path = saved(tmp_path, "{}")
    with path.open("r+b") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="larger"):
        open_price_file(path)


def test_kinds_without_a_price_of_their_own() -> None:
    plain = Rates(input=2, output=4)
    assert plain.cost(read=10**6, write_5m=10**6) == (0, 2, 0, 2, 0, 0)
    assert plain.cost(write_1h=1) is None
    assert plain.cost(searches=1) is None


# -- the package ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> Any:
    pytest.importorskip("genai_prices")
    return open_genai_prices()


@pytest.mark.parametrize(
    ("model", "when", "prompt", "expected"),
    [
        ("claude-opus-5-5", "2026-11-20", 1000, (4, 5, 8, 0.2, 20)),
        ("claude-sonnet-5-5", "2026-11-20", 1000, (2, 2.5, 4, 0.1, 10)),
        ("claude-haiku-5-5", "2026-11-20", 100_000, (0.1, 0.125, 0.2, 0.01, 0.5)),
        ("claude-haiku-5-5", "2026-11-20", 100_001, (0.5, 0.625, 1, 0.05, 2.5)),
        ("claude-fable-5-2", "2026-11-20", 1000, (8, 10, 16, 0.2, 40)),
        ("claude-opus-4-5-20251101", "2026-11-20", 1000, (5, 6.25, 10, 0.5, 25)),
        ("claude-sonnet-5", "2026-10-01", 1000, (2, 2.5, 4, 0.2, 10)),
        ("claude-sonnet-4-5", "2026-11-20", 200_000, (3, 3.75, 6, 0.3, 15)),
        ("claude-sonnet-4-5", "2026-11-20", 200_001, (6, 7.5, 12, 0.6, 22.5)),
        ("claude-haiku-4-5", "2026-11-20", 1000, (1, 1.25, 2, 0.1, 5)),
        # The surcharge for long prompts ended on 2026-03-13.
        ("claude-opus-4-6", "2026-03-12", 300_000, (10, 12.5, 20, 1, 37.5)),
        ("claude-opus-4-6[1m]", "2026-03-13", 300_000, (5, 6.25, 10, 0.5, 25)),
    ],
)
def test_list_prices(
    package: Any, model: str, when: str, prompt: int, expected: tuple[float, ...]
) -> None:
    found = package.rates(terms(model, when, prompt))
    assert (found.input, found.write_5m, found.write_1h, found.read, found.output) == expected
    assert found.search == pytest.approx(0.01)


def test_speed_place_and_batch(package: Any) -> None:
    def paid(model: str, **rest: str) -> tuple[float, float] | None:
        found = package.rates(terms(model, **rest))
        return None if found is None else (round(found.input, 9), round(found.read, 9))

    assert paid("claude-opus-5", speed="fast") == (10, 1)
    assert paid("claude-opus-4-7", speed="fast") == (30, 3)  # of before it ended
    assert paid("claude-haiku-4-5", speed="fast") is None  # there is no such price
    assert paid("claude-opus-5", geo="us") == (5.5, 0.55)
    assert paid("claude-opus-5", geo="not_available", service_tier="standard") == (5, 0.5)
    assert paid("claude-opus-5", service_tier="batch") == (2.5, 0.25)
    assert paid("claude-opus-5", service_tier="batch", when="2026-01-01") == (2.5, 0.25)
    assert paid("claude-opus-5", service_tier="batch", geo="us") == (2.75, 0.275)


def test_the_file_comes_before_the_package(package: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, {"models": {"claude-opus-5": {"input": 1, "output": 2}}})
    prices = open_prices(path)
    assert prices.rates(terms("claude-opus-5")) == Rates(input=1, output=2)
    other = prices.rates(terms("claude-haiku-4-5"))
    assert other is not None
    assert other.input == 1.0
    assert "prices.json, then genai-prices" in prices.source
    assert "2026-11" <= package.date <= datetime.now(UTC).date().isoformat()


def test_unknown_models_have_no_price(package: Any) -> None:
    assert Layers([package]).rates(terms("my-own-model")) is None
    assert Layers().rates(terms("claude-opus-5")) is None
