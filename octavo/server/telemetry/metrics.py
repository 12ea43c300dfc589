"""A reading of the metrics as Prometheus' text, version 0.0.4. Knows no metric by name.

The usual client library took 12 ms to write 20 histograms, on the thread that serves requests;
here the part of each line that never changes is made once, and a page takes a fraction of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from octavo.core.histogram import Spread
from octavo.server.telemetry.metric import Metric, Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_SECONDS = 0.05


class MetricsPage:
    """`labels` are on every sample that has a model. For one event loop.

    `read` is asked, and the page written, at most once in 50 ms however often it is scraped.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        read: Callable[[], Reading],
        *,
        labels: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._writers = [_Writer(metric, labels) for metric in metrics]
        self._read = read
        self._clock = clock
        self._page = b""
        self._written_at: float | None = None

    def text(self) -> bytes:
        """The page, at most 50 ms old."""
        now = self._clock()
        if self._written_at is None or now - self._written_at >= FRESH_SECONDS:
            self._page = self._write()
            self._written_at = now
        return self._page

    def _write(self) -> bytes:
        reading = self._read()
        lines: list[str] = []
        for writer in self._writers:
            writer.write(reading, lines)
        lines.append("")
        return "\n".join(lines).encode("utf-8")


class _Writer:
    """One metric's lines. Keeps the heads of its samples."""

    def __init__(self, metric: Metric, labels: Mapping[str, str]) -> None:
        self._metric = metric
        self._labels = {} if metric.plain else dict(labels)
        self._sample = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        self._opening = (
            f"# HELP {self._sample} {metric.doc}",
            f"# TYPE {self._sample} {metric.kind}",
        )
        self._heads: dict[tuple[str, ...], str] = {}
        self._bucket_heads: list[str] = []

    def write(self, reading: Reading, lines: list[str]) -> None:
        value = self._metric.value(reading)
        if value is None:
            return
        lines += self._opening
        if isinstance(value, Spread):
            self._write_spread(value, lines)
        elif isinstance(value, Mapping):
            lines += [f"{self._head(key)} {number(each)}" for key, each in value.items()]
        else:
            lines.append(f"{self._head(())} {number(value)}")

    def _write_spread(self, spread: Spread, lines: list[str]) -> None:
        name = self._metric.name
        if not self._bucket_heads:
            edges = [*map(repr, spread.bounds), "+Inf"]
            self._bucket_heads = [
                head(f"{name}_bucket", self._labels | {"le": edge}) for edge in edges
            ]
            self._heads[("sum",)] = head(f"{name}_sum", self._labels)
            self._heads[("count",)] = head(f"{name}_count", self._labels)
        counts = spread.cumulative()
        lines += map("%s %d".__mod__, zip(self._bucket_heads, counts, strict=True))
        lines.append(f"{self._heads[('sum',)]} {number(spread.total)}")
        lines.append(f"{self._heads[('count',)]} {counts[-1]}")

    def _head(self, values: tuple[str, ...]) -> str:
        known = self._heads.get(values)
        if known is None:
            own = dict(zip(self._metric.labels, values, strict=True))
            known = self._heads[values] = head(self._sample, self._labels | own)
        return known


def head(name: str, labels: Mapping[str, str]) -> str:
    """`name{label="value",…}`, or the name alone."""
    if not labels:
        return name
    pairs = [f'{key}="{escaped(text)}"' for key, text in labels.items()]
    return f"{name}{{{','.join(pairs)}}}"


def escaped(text: str) -> str:
    """A label's value as the format wants it between quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
