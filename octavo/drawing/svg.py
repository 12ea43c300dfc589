"""Plots as SVG text: lines and bars, nothing that runs. Knows no subject."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from octavo.drawing.figures import Bars, Lines

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 44
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#9a6700")
MOST_POINTS = 400
DIGIT_WIDTH = 7  # at 12 pixels
BAR_HEIGHT, BAR_LEFT, BAR_RIGHT = 26, 230, 110


def drawn(plot: Lines | Bars) -> str:
    """The plot as one svg element."""
    return draw_lines(plot) if isinstance(plot, Lines) else draw_bars(plot)


class Axis:
    """Values on a line of pixels, from 0, or from the lowest one on a logarithmic axis."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool) -> None:
        self._start, self._end, self._log = start, end, log
        high = max(values)
        self.ticks = sorted(set(values)) if log else ticks(high)
        low = min(values) if log else 0.0
        self._low = self._scaled(low)
        self._span = (self._scaled(max(high, self.ticks[-1])) - self._low) or 1.0

    def _scaled(self, value: float) -> float:
        return math.log2(value) if self._log else value

    def at(self, value: float) -> float:
        """The pixel of `value`."""
        share = (self._scaled(value) - self._low) / self._span
        return self._start + share * (self._end - self._start)


def ticks(high: float) -> list[float]:
    """About five round numbers from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    step = 10.0 ** math.floor(math.log10(high / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if high / (step * factor) <= 5)
    return [i * step for i in range(math.ceil(high / step) + 1)]


def labels(axis: Axis) -> list[tuple[float, str]]:
    """Places and texts of ticks from the last one down, without those that would run into it."""
    found: list[tuple[float, str]] = []
    free = float(WIDTH)
    for value in reversed(axis.ticks):
        place, text = axis.at(value), f"{value:,.10g}"
        half = len(text) * DIGIT_WIDTH / 2
        if not found or place + half <= free:
            found.append((place, text))
            free = place - half - DIGIT_WIDTH
    return found


def draw_lines(plot: Lines) -> str:
    """Axes with labels, a line for each series and, of several, their names."""
    points = [point for line in plot.series.values() for point in line]
    x = Axis([p[0] for p in points], LEFT, WIDTH - RIGHT, log=plot.log_x)
    y = Axis([p[1] for p in points], HEIGHT - BOTTOM, TOP, log=False)
    parts = []
    for value in y.ticks:
        parts.append(_line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value)))
        parts.append(_text(LEFT - 8, y.at(value) + 4, f"{value:g}", anchor="end"))
    low = HEIGHT - BOTTOM
    parts += [_line(x.at(value), low, x.at(value), low + 4) for value in x.ticks]
    parts += [_text(place, HEIGHT - BOTTOM + 18, label) for place, label in labels(x)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, plot.x_label))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f' transform="rotate(-90 14 {middle:.1f})"'
    parts.append(_text(14, middle, plot.y_label, extra=turned))
    for i, (name, line) in enumerate(plot.series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in thinned(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(plot.series) > 1:
            place = WIDTH - RIGHT - 6, TOP + 14 + 16 * i
            parts.append(_text(*place, name, anchor="end", fill=colour))
    return _svg(plot.title, HEIGHT, parts)


def draw_bars(plot: Bars) -> str:
    """A horizontal bar for each name, its value behind it."""
    high = max((value for _, value in plot.bars), default=0.0) or 1.0
    parts = []
    for i, (name, value) in enumerate(plot.bars):
        top = TOP + i * BAR_HEIGHT
        length = (WIDTH - BAR_LEFT - BAR_RIGHT) * value / high
        parts.append(_text(BAR_LEFT - 8, top + 15, name, anchor="end"))
        parts.append(
            f'<rect x="{BAR_LEFT}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT - 6}" '
            f'fill="{COLOURS[0]}"/>'
        )
        shown = f"{value:,.2f} {plot.unit}"
        parts.append(_text(BAR_LEFT + length + 6, top + 15, shown, anchor="start"))
    return _svg(plot.title, 2 * TOP + BAR_HEIGHT * len(plot.bars), parts)


def thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MOST_POINTS of the points, the first and the last among them."""
    if len(line) <= MOST_POINTS:
        return list(line)
    last = len(line) - 1
    return [line[i * last // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>\n{body}\n</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#8886" '
        'stroke-width="1"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "middle",
    fill: str = "currentColor",
    extra: str = "",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{extra}>'
        f"{escape(text)}</text>"
    )
