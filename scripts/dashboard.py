"""Generate deploy/grafana/octavo.json: the dashboard as rows of panels, laid out by this script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "octavo.json"
COLUMNS = 24
HEIGHT = 8
WHERE = 'model_name=~"$model"'
SOURCE = {"type": "prometheus", "uid": "${source}"}
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`queries`: legend to expression. `unit`: Grafana's name of it."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    most: float | None = None
    about: str = ""


def rate(name: str, by: str = "") -> str:
    inner = f"rate({name}{{{WHERE}}}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def heat(title: str, name: str, about: str = "") -> Panel:
    """How many observations fell into each bucket over time."""
    query = f"sum by (le) (increase({name}_bucket{{{WHERE}}}[$__rate_interval]))"
    return Panel(title=title, queries={"{{le}}": query}, unit="s", kind="heatmap", about=about)


def quantiles(title: str, name: str) -> Panel:
    queries = {
        f"p{round(share * 100)}": f"histogram_quantile({share}, {rate(f'{name}_bucket', 'le')})"
        for share in QUANTILES
    }
    return Panel(title=title, queries=queries, unit="s")


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "The cache",
        (
            Panel(
                title="Hit rate",
                queries={
                    "prompt tokens read": f"{rate('vllm:prefix_cache_hits_total')} / "
                    f"{rate('vllm:prefix_cache_queries_total')}"
                },
                unit="percentunit",
                most=1.0,
                about="Of the prompt tokens that were looked up, those that the cache had.",
            ),
            Panel(
                title="Usage",
                queries={"held": f"max(vllm:kv_cache_usage_perc{{{WHERE}}})"},
                unit="percentunit",
                most=1.0,
                about="Blocks in use by requests and pins. Cached ones that nobody uses are free.",
            ),
            Panel(
                title="Blocks",
                queries={"{{state}}": f"sum by (state) (octavo:kv_blocks{{{WHERE}}})"},
                stacked=True,
            ),
            Panel(
                title="Where prompts came from",
                queries={
                    "read": rate("vllm:prompt_tokens_cached_total"),
                    "written {{kind}}": rate("octavo:cache_written_tokens_total", "kind"),
                    "not kept": rate("octavo:unkept_tokens_total"),
                    "shared in flight": rate("octavo:in_flight_shared_tokens_total"),
                },
                about="Tokens per second. Shared in flight is a part of read.",
            ),
            Panel(
                title="Evictions, copies, preemptions",
                queries={
                    "evicted blocks": rate("octavo:evictions_total"),
                    "copied blocks": rate("octavo:copied_blocks_total"),
                    "preemptions": rate("vllm:num_preemptions_total"),
                    "stalls": rate("octavo:stalls_total"),
                },
            ),
            heat(
                "Idle before eviction",
                "vllm:kv_block_idle_before_evict_seconds",
                "Short times mean that blocks go before anybody could have used them again.",
            ),
        ),
    ),
    (
        "Latency",
        (
            heat("Time to first token", "vllm:time_to_first_token_seconds"),
            heat("Between tokens", "vllm:inter_token_latency_seconds"),
            heat("Whole requests", "vllm:e2e_request_latency_seconds"),
            quantiles("Time to first token, quantiles", "vllm:time_to_first_token_seconds"),
            quantiles("Between tokens, quantiles", "vllm:inter_token_latency_seconds"),
            quantiles("Time in the queue", "vllm:request_queue_time_seconds"),
        ),
    ),
    (
        "Load",
        (
            Panel(
                title="Queue",
                queries={
                    "running": f"sum(vllm:num_requests_running{{{WHERE}}})",
                    "waiting": f"sum(vllm:num_requests_waiting{{{WHERE}}})",
                },
            ),
            Panel(
                title="Tokens per second",
                queries={
                    "prompt": rate("vllm:prompt_tokens_total"),
                    "generated": rate("vllm:generation_tokens_total"),
                    "computed": rate("octavo:computed_tokens_total"),
                },
            ),
            Panel(
                title="Ends",
                queries={
                    "{{finished_reason}}": rate("vllm:request_success_total", "finished_reason")
                },
            ),
            Panel(
                title="HTTP answers",
                queries={"{{status}}": rate("octavo:http_requests_total", "status")},
            ),
            Panel(
                title="Blocks held, slots and rows lost",
                queries={
                    "blocks held": rate("octavo:block_seconds_total"),
                    "lost slots": rate("octavo:lost_slots_total"),
                    "rows lost by the ledger": rate("octavo:ledger_lost_rows_total"),
                },
            ),
            Panel(
                title="Memory of the process",
                queries={"resident": 'process_resident_memory_bytes{job=~"$job"}'},
                unit="bytes",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": place})
        y += 1
        width = COLUMNS // 3
        for i, panel in enumerate(row):
            at = {"h": HEIGHT, "w": width, "x": i % 3 * width, "y": y + i // 3 * HEIGHT}
            panels.append(drawn(panel) | {"gridPos": at})
        y += -(-len(row) // 3) * HEIGHT
    return {
        "title": "Octavo",
        "uid": "octavo",
        "tags": ["octavo", "llm"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": variables()},
        "panels": [{"id": i} | panel for i, panel in enumerate(panels, start=1)],
    }


def drawn(panel: Panel) -> dict[str, Any]:
    heatmap = panel.kind == "heatmap"
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": legend,
            "format": "heatmap" if heatmap else "time_series",
        }
        for i, (legend, query) in enumerate(panel.queries.items())
    ]
    found = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {} if heatmap else defaults, "overrides": []},
        "targets": targets,
    }
    if heatmap:
        found["options"] = {"calculate": False, "yAxis": {"unit": panel.unit}}
    return found


def variables() -> list[dict[str, Any]]:
    """The choices at the top of the page."""

    def choice(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": query,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }

    return [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        choice("model", "Model", "label_values(vllm:cache_config_info, model_name)"),
        choice("job", "Job", "label_values(vllm:cache_config_info, job)"),
    ]


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(dashboard(), indent=2) + "\n", encoding="utf-8")
