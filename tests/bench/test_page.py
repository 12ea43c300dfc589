"""Plots and pages: well-formed, self-contained, and unable to run anything."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from octavo.bench.page import page
from octavo.bench.result import Result, shown
from octavo.drawing.figures import Bars, Lines, Table
from octavo.drawing.svg import MOST_POINTS, drawn, thinned, ticks

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('&')</script>"


def lines(*points: tuple[float, float], log_x: bool = False) -> Lines:
    return Lines(title="t", x_label="x", y_label="y", series={"a": points}, log_x=log_x)


def vertices(svg: str) -> list[tuple[float, float]]:
    (line,) = ElementTree.fromstring(svg).findall(f"{SVG}polyline")
    pairs = [pair.split(",") for pair in line.attrib["points"].split()]
    return [(float(x), float(y)) for x, y in pairs]


def test_larger_values_are_further_right_and_higher() -> None:
    points = vertices(drawn(lines((0, 1), (5, 2), (10, 4))))
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_a_logarithmic_axis_spaces_doublings_equally() -> None:
    xs = [x for x, _ in vertices(drawn(lines((256, 1), (512, 1), (1024, 1), log_x=True)))]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


@pytest.mark.parametrize("points", [[(0.0, 0.0)], [(3.0, 0.0), (3.0, 0.0)], [(1e-9, 1e9)]])
def test_odd_values_still_draw(points: list[tuple[float, float]]) -> None:
    ElementTree.fromstring(drawn(lines(*points)))
    ElementTree.fromstring(drawn(lines((256, 0.0), log_x=True)))


@pytest.mark.parametrize("high", [1e-6, 0.3, 1, 4.2, 99, 12345.6])
def test_ticks_cover_the_values_and_are_few(high: float) -> None:
    found = ticks(high)
    assert found[0] == 0
    assert found[-1] >= high
    assert 3 <= len(found) <= 7


def test_many_points_are_thinned_between_first_and_last() -> None:
    many = [(float(i), 0.0) for i in range(5000)]
    kept = thinned(many)
    assert len(kept) == MOST_POINTS
    assert (kept[0], kept[-1]) == (many[0], many[-1])


def test_bars_are_as_long_as_their_values() -> None:
    svg = drawn(Bars(title="t", unit="s", bars=[("a", 1.0), ("b", 2.0), ("c", 0.0)]))
    widths = [float(bar.attrib["width"]) for bar in ElementTree.fromstring(svg).iter(f"{SVG}rect")]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert widths[2] == 0


def test_a_page_needs_nothing_from_outside_and_runs_nothing() -> None:
    result = Result(
        name="throughput",
        settings={"model": HOSTILE},
        figures={},
        tables=(Table(HOSTILE, ("", HOSTILE), ((HOSTILE, "1"),)),),
        plots=(
            Lines(title=HOSTILE, x_label=HOSTILE, y_label=HOSTILE, series={HOSTILE: [(1, 1)]}),
            Bars(title=HOSTILE, unit=HOSTILE, bars=[(HOSTILE, 1.0)]),
        ),
        notes=(HOSTILE,),
    )
    record = {"command": HOSTILE, "date": "d", "octavo": "0", "machine": {"cpu": HOSTILE}}
    html = page(result, record)
    assert "<script" not in html
    assert not re.search(r"(src|href)=|url\(|@import", html)
    assert html.count("<svg") == 2


def test_numbers_as_people_read_them() -> None:
    assert (shown(None), shown(1234), shown(1234.5)) == ("–", "1,234", "1,234.50")
