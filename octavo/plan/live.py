"""What a running server says of its cache, beside what the planner says. Reads metrics in
Prometheus' text form under vLLM's names; knows no HTTP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.core.errors import EngineError
from octavo.drawing.figures import Table
from octavo.plan.formats import KVFormat, kv_format
from octavo.plan.model import PlannedModel
from octavo.plan.sizes import binary

BLANK = "–"
MAX_COUNT = 1 << 40
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]{0,200})(\{(?P<labels>[^}]{0,4000})\})? (?P<value>\S{1,40})", re.ASCII
)
_LABEL = re.compile(r'(\w{1,60})="([^"\\]{0,200})"', re.ASCII)
# Octavo keeps a scale beside each head's token where K and V have 8 bits.
_OWN_FORMATS = {"int8": "int8_per_token_head", "fp8": "fp8_per_token_head"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Figures of a server since its start. None: it does not say, or nothing has happened yet."""

    model: str
    block_tokens: int
    num_blocks: int
    cache_dtype: str
    token_bytes: int | None
    capacity_tokens: int | None
    usage: float | None
    running: int | None
    waiting: int | None
    query_tokens: float | None
    hit_tokens: float | None
    prompt_tokens: float | None
    generated_tokens: float | None
    requests: float | None
    lost_slots: float | None

    @property
    def hit_rate(self) -> float | None:
        """Share of the looked-up prompt tokens that the cache had."""
        return _ratio(self.hit_tokens, self.query_tokens)

    @property
    def mean_length(self) -> float | None:
        """Tokens of a request, prompt and answer."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return _ratio(self.prompt_tokens + self.generated_tokens, self.requests)

    @property
    def lost_per_request(self) -> float | None:
        return _ratio(self.lost_slots, self.requests)

    def fmt(self) -> KVFormat:
        """The planner's name for the server's format; raises ConfigError."""
        return kv_format(_OWN_FORMATS.get(self.cache_dtype, self.cache_dtype))


def observed(text: str, model: str) -> Observed:
    """Read a page of metrics; raises EngineError where it is not that of such a server."""
    info = _info(text)
    values = _sums(text)

    def number(name: str) -> float | None:
        return values.get(name, values.get(f"{name}_total"))

    def whole(name: str) -> int | None:
        found = number(name)
        return None if found is None else int(found)

    return Observed(
        model=model,
        block_tokens=_count(info, "block_size"),
        num_blocks=_count(info, "num_gpu_blocks"),
        cache_dtype=info.get("cache_dtype", "unknown"),
        token_bytes=whole("octavo:kv_bytes_per_token"),
        capacity_tokens=whole("octavo:kv_capacity_tokens"),
        usage=number("vllm:kv_cache_usage_perc"),
        running=whole("vllm:num_requests_running"),
        waiting=whole("vllm:num_requests_waiting"),
        query_tokens=number("vllm:prefix_cache_queries"),
        hit_tokens=number("vllm:prefix_cache_hits"),
        prompt_tokens=number("vllm:prompt_tokens"),
        generated_tokens=number("vllm:generation_tokens"),
        requests=number("vllm:request_success"),
        lost_slots=number("octavo:lost_slots"),
    )


def beside(model: PlannedModel, seen: Observed) -> Table:
    """Prediction and observation. Predicted are sizes that follow from the model and the blocks;
    what depends on the traffic alone is only observed."""
    fmt, geometry, block = seen.fmt(), model.geometry, seen.block_tokens
    token_bytes = geometry.early_token_bytes(fmt)
    # Groups of layers share the blocks: tokens are fewer than blocks times their size.
    tokens = seen.capacity_tokens or seen.num_blocks * block
    room = tokens * token_bytes
    length = seen.mean_length
    rows = [
        ("bytes a token", f"{token_bytes:,}", _shown(seen.token_bytes)),
        ("blocks", BLANK, f"{seen.num_blocks:,} of {block} tokens"),
        ("tokens in them", BLANK, f"{tokens:,}"),
        ("room", binary(room), _room(seen, tokens)),
        ("mean request, tokens", BLANK, _shown(length)),
        ("slots lost per request", _shown((block - 1) / 2), _shown(seen.lost_per_request)),
        ("requests at once", _shown(_fitting(model, fmt, room, seen)), _shown(seen.running)),
        ("waiting", BLANK, _shown(seen.waiting)),
        ("blocks in use", BLANK, _percent(seen.usage)),
        ("prefix hit rate, tokens", BLANK, _percent(seen.hit_rate)),
        ("prefill saved", BLANK, _speed_up(seen.hit_rate)),
    ]
    title = f"{seen.model} as planned, K and V in {fmt.name}, and as it runs"
    return Table(title, ("", "planned", "observed"), tuple(rows))


def live_record(model: PlannedModel, seen: Observed) -> dict[str, object]:
    """The same as plain values."""
    fmt = seen.fmt()
    token_bytes = model.geometry.early_token_bytes(fmt)
    room = (seen.capacity_tokens or seen.num_blocks * seen.block_tokens) * token_bytes
    return {
        "model": seen.model,
        "planned": {
            "bytes_per_token": token_bytes,
            "room_bytes": room,
            "requests_at_once": _fitting(model, fmt, room, seen),
            "lost_slots_per_request": (seen.block_tokens - 1) / 2,
        },
        "observed": {
            "bytes_per_token": seen.token_bytes,
            "capacity_tokens": seen.capacity_tokens,
            "block_tokens": seen.block_tokens,
            "blocks": seen.num_blocks,
            "usage_share": seen.usage,
            "running": seen.running,
            "waiting": seen.waiting,
            "hit_rate_tokens": seen.hit_rate,
            "mean_length_tokens": seen.mean_length,
            "lost_slots_per_request": seen.lost_per_request,
        },
    }


def _fitting(model: PlannedModel, fmt: KVFormat, room: int, seen: Observed) -> int | None:
    """Requests of the observed mean length that the room holds; None before the first one."""
    if seen.mean_length is None:
        return None
    tokens = max(1, round(seen.mean_length))
    each = model.geometry.paged_bytes(tokens, fmt, block_tokens=seen.block_tokens)
    return room // each


def _room(seen: Observed, tokens: int) -> str:
    return BLANK if seen.token_bytes is None else binary(seen.token_bytes * tokens)


def _speed_up(hit_rate: float | None) -> str:
    """1 / (1 - r): how many times less a prompt costs to compute, at best."""
    return BLANK if hit_rate is None or hit_rate >= 1 else f"{1 / (1 - hit_rate):.2f} times less"


def _shown(value: float | None) -> str:
    if value is None:
        return BLANK
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return BLANK if value is None else f"{100 * value:.1f} %"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _sums(text: str) -> dict[str, float]:
    """Each metric's samples added up over its labels."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if math.isfinite(value) and 0 <= value < 1e18:
            sums[found["name"]] = sums.get(found["name"], 0.0) + value
    return sums


def _info(text: str) -> Mapping[str, str]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is not None and found["name"] == "vllm:cache_config_info":
            return dict(_LABEL.findall(found["labels"] or ""))
    raise EngineError("the server's /metrics has no vllm:cache_config_info: is it an Octavo?")


def _count(info: Mapping[str, str], name: str) -> int:
    value = info.get(name, "")
    if not value.isascii() or not value.isdigit() or len(value) > 12 or not int(value) > 0:
        raise EngineError(f"the server's vllm:cache_config_info has no whole number as {name}")
    return min(int(value), MAX_COUNT)
