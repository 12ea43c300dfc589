"""The HTML page: whole, still, and safe with hostile names."""

from __future__ import annotations

import re
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path

from octavo.pricing.api_prices import Layers
from octavo.usage.page import page
from tests.usage.conftest import answer, read, source_of


class Tags(HTMLParser):
    """Tags that are open, and all that were seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(logs: Path, prices: Layers, *rows: dict[str, object]) -> str:
    history = read(logs, rows)
    source = source_of(logs, prices, zone=UTC)
    return page(source.report("daily", history), history.messages, prices, zone=UTC)


def test_it_is_whole_and_runs_nothing(logs: Path, prices: Layers) -> None:
    days = [answer(f"{i}", 86_400 * i, m5=10_000, read=90_000, output=50) for i in range(3)]
    text = made(logs, prices, *days)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"] * 3
    # 3 days of write, read and output, and 7 × 24 hours.
    assert tags.seen.count("rect") == 3 * 3 + 7 * 24
    assert tags.seen.count("circle") == 3
    for shown in ("90.0%", "2026-11-02", "2026-11-04", "write 5m", "Mon 9:00", "of 2026-11-01"):
        assert shown in text, shown


def test_names_are_escaped(logs: Path, prices: Layers) -> None:
    evil = "<script>alert(1)</script>\"'&"
    text = made(logs, prices, answer("a", row={"cwd": evil, "sessionId": evil}, model=evil))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_no_logs_and_no_prices(logs: Path, prices: Layers) -> None:
    for some in (prices, Layers()):
        tags = Tags()
        tags.feed(made(logs, some))
        assert tags.open == []
    tags = Tags()
    text = made(logs, Layers(), answer("a", input=5))
    tags.feed(text)
    assert "no price" in text
