"""The dashboard asks for nothing that the server does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.server.telemetry.metric import Metric
from octavo.server.telemetry.own_metrics import OWN_METRICS
from octavo.server.telemetry.vllm_metrics import VLLM_METRICS
from scripts.dashboard import TARGET, dashboard

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:(?:vllm|octavo):|process_)\w+")
SELECTOR = re.compile(r"((?:(?:vllm|octavo):|process_)\w+)(?:\{([^}]*)\})?")
ADDED_BY_PROMETHEUS = {"job", "instance"}


def series() -> dict[str, set[str]]:
    """Every name that a scrape has, and its labels."""
    found: dict[str, set[str]] = {}
    for metric in (*VLLM_METRICS, *OWN_METRICS):
        labels = set(metric.labels) | (set() if metric.plain else {"model_name", "engine"})
        for name, more in names(metric):
            found[name] = labels | more | ADDED_BY_PROMETHEUS
    return found


def names(metric: Metric) -> Iterator[tuple[str, set[str]]]:
    if metric.kind == "histogram":
        yield f"{metric.name}_bucket", {"le"}
        yield f"{metric.name}_sum", set()
        yield f"{metric.name}_count", set()
    else:
        yield metric.name + ("_total" if metric.kind == "counter" else ""), set()


def expressions(page: dict[str, Any]) -> list[str]:
    queries = [each["expr"] for panel in page["panels"] for each in panel.get("targets", ())]
    return queries + [
        each["query"] for each in page["templating"]["list"] if each["type"] == "query"
    ]


def test_every_name_and_label_in_every_expression_exists() -> None:
    known = series()
    found = expressions(json.loads(TARGET.read_text(encoding="utf-8")))
    assert len(found) > 30
    for expression in found:
        selected = SELECTOR.findall(expression)
        assert selected, expression
        for name, matchers in selected:
            assert name in known, expression
            used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers))
            assert used <= known[name], expression
        grouped = re.findall(r"by \((\w+)\)", expression)
        assert set(grouped) <= {label for name, _ in selected for label in known[name]}, expression


def test_counters_are_only_shown_as_rates() -> None:
    counters = {
        name for metric in VLLM_METRICS for name, _ in names(metric) if metric.kind == "counter"
    }
    for expression in expressions(dashboard()):
        for name in set(NAME.findall(expression)) & counters:
            assert f"rate({name}" in expression


def test_what_an_operator_looks_for_is_there() -> None:
    shown = " ".join(expressions(dashboard()))
    for name in (
        "vllm:prefix_cache_hits_total",
        "vllm:kv_cache_usage_perc",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_bucket",
        "octavo:evictions_total",
        "vllm:num_requests_waiting",
    ):
        assert name in shown


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_file_is_what_the_script_makes() -> None:
    assert json.loads(TARGET.read_text(encoding="utf-8")) == dashboard()


@pytest.mark.parametrize("line", ["metrics_path: /metrics", 'targets: ["127.0.0.1:8000"]'])
def test_prometheus_is_told_where_to_look(line: str) -> None:
    assert line in (ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8")
