"""Other cache settings against sums made by hand, and what must hold between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from octavo.pricing.api_prices import Layers
from octavo.pricing.api_rates import Rates
from octavo.pricing.price_file import Entry, PriceFile
from octavo.usage.message import Message
from octavo.usage.turns import turns
from octavo.usage.whatif import RULES, most_pings, whatif
from tests.usage.conftest import OPUS, answer, read, usage
from tests.usage.test_turns import MESSAGES

P = 10_000  # tokens of every prefix here
IN, W5, W1, R = 5e-6, 6.25e-6, 10e-6, 0.5e-6
OUT = 100 * 25e-6  # dollars of every answer here


def totals(logs: Path, prices: Layers, *rows: dict[str, Any]) -> dict[str, float]:
    history = read(logs, rows)
    found = whatif(turns(history.messages, history.compactions), prices)
    assert set(found.totals) == set(RULES)
    return found.totals


def test_a_gap_of_ten_minutes_under_five(logs: Path, prices: Layers) -> None:
    found = totals(logs, prices, answer("a", 0, m5=P), answer("b", 600, m5=P + 400))
    paid = (2 * P + 400) * W5 + 2 * OUT
    assert found["as logged"] == found["all 5 minutes"] == pytest.approx(paid)
    assert found["all 1 hour"] == pytest.approx((P + 400) * W1 + P * R + 2 * OUT)
    assert found["no caching"] == pytest.approx((2 * P + 400) * IN + 2 * OUT)
    # Two pings in the gap, eleven after the end.
    pings = 2 * P * R + 11 * (P + 400) * R
    assert found["keep-alive pings"] == pytest.approx((P + 400) * W5 + P * R + pings + 2 * OUT)


def test_the_same_gap_under_an_hour(logs: Path, prices: Layers) -> None:
    found = totals(logs, prices, answer("a", 0, h1=P), answer("b", 600, read=P, h1=400))
    assert (
        found["as logged"] == found["all 1 hour"] == pytest.approx((P + 400) * W1 + P * R + 2 * OUT)
    )
    assert found["all 5 minutes"] == pytest.approx((2 * P + 400) * W5 + 2 * OUT)


def test_pings_give_up_when_they_have_cost_a_write(logs: Path, prices: Layers) -> None:
    found = totals(logs, prices, answer("a", 0, m5=P), answer("b", 6 * 3600, m5=P))
    assert found["keep-alive pings"] == pytest.approx(2 * P * W5 + 22 * P * R + 2 * OUT)


@pytest.mark.parametrize(
    ("write", "read", "pings"), [(1.25, 0.1, 11), (1.25, 0.05, 24), (1.25, 0.025, 49), (1, 1, 0)]
)
def test_how_many_pings_pay(write: float, read: float, pings: int) -> None:
    assert most_pings(Rates(input=1, output=5, write_5m=write, read=read)) == pings


def test_the_better_is_chosen_for_each_session(logs: Path, prices: Layers) -> None:
    def row(key: str, at: float, session: str, **counts: int) -> dict[str, Any]:
        return answer(key, at, row={"sessionId": session}, **counts)

    rows = [
        *(row(f"s{i}", 100 * i, "steady", m5=P if not i else 0, read=P if i else 0)
          for i in range(4)),
        *(row(f"g{i}", 600 * i, "gaps", m5=P) for i in range(4)),
    ]  # fmt: skip
    found = totals(logs, prices, *rows)
    steady = P * W5 + 3 * P * R + 4 * OUT
    gaps = P * W1 + 3 * P * R + 4 * OUT
    assert found["better per session"] == pytest.approx(steady + gaps)
    assert found["better per session"] < min(found["all 5 minutes"], found["all 1 hour"])


@pytest.mark.parametrize(
    ("read", "uses", "cheaper"),
    [(0.1, 1, False), (0.1, 2, True), (0.05, 2, True), (0.025, 2, True)],
)
def test_five_minutes_pay_from_the_second_use(
    logs: Path, read: float, uses: int, cheaper: bool
) -> None:
    """n > (w - r)/(1 - r): 1.278 at w = 1.25 and r = 0.1."""
    found = _by_uses(logs, read, uses)
    assert (found["all 5 minutes"] < found["no caching"]) is cheaper


@pytest.mark.parametrize(("uses", "cheaper"), [(2, False), (3, True)])
def test_an_hour_pays_from_the_third_use(logs: Path, uses: int, cheaper: bool) -> None:
    """2.111 at w = 2 and r = 0.1."""
    found = _by_uses(logs, 0.1, uses)
    assert (found["all 1 hour"] < found["no caching"]) is cheaper


def _by_uses(logs: Path, read_rate: float, uses: int) -> dict[str, float]:
    rates = Rates(input=1, output=0, read=read_rate, write_5m=1.25, write_1h=2)
    prices = Layers([PriceFile("test", "", {OPUS: (Entry(0.0, rates),)})])
    rows = [answer(str(i), i * 60, m5=0 if i else P, read=P if i else 0) for i in range(uses)]
    return totals(logs, prices, *rows)


def test_advisors_and_searches_cost_the_same_everywhere(logs: Path, prices: Layers) -> None:
    advisor = {"type": "advisor_message", "model": "claude-haiku-4-5", **usage(input=10**6)}
    row = answer("a", m5=P, iterations=[advisor], server_tool_use={"web_search_requests": 2})
    plain, full = totals(logs, prices, answer("a", m5=P)), totals(logs, prices, row)
    more = {name: pytest.approx(total + 1.0005 + 0.02) for name, total in plain.items()}
    assert full == more


def test_what_has_no_price_is_in_no_sum(logs: Path, prices: Layers) -> None:
    history = read(logs, [answer("a", m5=P), answer("b", 9, model="new", read=P)])
    found = whatif(turns(history.messages, []), prices)
    assert found.unpriced_tokens == P + 100
    assert found.totals["as logged"] == pytest.approx(P * W5 + OUT)


@given(MESSAGES)
def test_what_must_hold_for_any_traffic(messages: list[Message]) -> None:
    rates = Rates(input=5, output=25, read=0.5, write_5m=6.25, write_1h=10)
    known = {OPUS: (Entry(0.0, rates),), "claude-haiku-4-5": (Entry(0.0, rates),)}
    named = [one._replace(id=str(i)) for i, one in enumerate(messages)]
    found = whatif(turns(named, []), PriceFile("test", "", known)).totals
    logged = sum(
        one.main.input * 5 + one.main.write_5m * 6.25 + one.main.write_1h * 10
        + one.main.read * 0.5 + one.main.output * 25
        for one in named if one.main.prompt
    )  # fmt: skip
    assert found["as logged"] == pytest.approx(logged / 1e6)
    both = found["all 5 minutes"], found["all 1 hour"]
    assert found["better per session"] <= min(both) + 1e-12
    assert all(total >= 0 for total in found.values())
