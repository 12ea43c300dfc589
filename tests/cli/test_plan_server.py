"""`octavo plan --server` against a server that plays recorded pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo.core.errors import EngineError
from octavo.plan.live import observed
from tests.cli.conftest import Result

Run = Callable[..., Result]
MODELS = json.dumps({"object": "list", "data": [{"id": "smollm2"}]})
METRICS = """# HELP vllm:cache_config_info What the KV cache was given at the start.
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="int8",enable_prefix_caching="True",num_gpu_blocks="2000"} 1.0
vllm:num_requests_running{model_name="smollm2"} 3.0
vllm:num_requests_waiting{model_name="smollm2"} 0.0
vllm:kv_cache_usage_perc{model_name="smollm2"} 0.125
vllm:prefix_cache_queries_total{model_name="smollm2"} 1000.0
vllm:prefix_cache_hits_total{model_name="smollm2"} 800.0
vllm:prompt_tokens_total{model_name="smollm2"} 1000.0
vllm:generation_tokens_total{model_name="smollm2"} 280.0
vllm:request_success_total{finished_reason="stop",model_name="smollm2"} 4.0
vllm:request_success_total{finished_reason="length",model_name="smollm2"} 6.0
octavo:lost_slots_total 60.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} NaN
"""  # noqa: E501
INT8_TOKEN_BYTES = 30 * 3 * 2 * (64 + 4)


@contextmanager
def serving(pages: dict[str, tuple[int, str]], *, wanted: str | None = None) -> Iterator[str]:
    """`wanted`: the header with the key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = pages.get(self.path, (404, ""))
            if self.headers["Authorization"] != wanted:
                status, text = 401, ""
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_prediction_stands_beside_observation(octavo: Run) -> None:
    pages = {"/v1/models": (200, MODELS), "/metrics": (200, METRICS)}
    with serving(pages) as url:
        done = octavo("plan", "--server", url)
        record = json.loads(octavo("plan", "--server", f"{url}/v1/", "--json").out)
    assert done.code == 0, done.err
    for text in (f"{INT8_TOKEN_BYTES:,}", "2,000 of 16 tokens", "32,000", "80.0 %", "5.00 times"):
        assert text in done.out
    assert "250" in done.out  # requests of 128 tokens, 8 blocks each
    assert record["planned"]["bytes_per_token"] == INT8_TOKEN_BYTES
    assert record["planned"]["room_bytes"] == 32_000 * INT8_TOKEN_BYTES
    assert record["planned"]["requests_at_once"] == 250
    assert record["observed"] == {
        "bytes_per_token": None,
        "capacity_tokens": None,
        "block_tokens": 16,
        "blocks": 2000,
        "usage_share": 0.125,
        "running": 3,
        "waiting": 0,
        "hit_rate_tokens": 0.8,
        "mean_length_tokens": 128.0,
        "lost_slots_per_request": 6.0,
    }


def test_an_idle_server_leaves_blanks(octavo: Run) -> None:
    idle = METRICS.replace("1000.0", "0").replace("800.0", "0").replace("280.0", "0")
    idle = idle.replace("4.0", "0").replace("6.0", "0")
    with serving({"/v1/models": (200, MODELS), "/metrics": (200, idle)}) as url:
        record = json.loads(octavo("plan", "smollm2", "--server", url, "--json").out)
    assert record["observed"]["hit_rate_tokens"] is None
    assert record["observed"]["mean_length_tokens"] is None


@pytest.mark.parametrize(
    ("pages", "hint"),
    [
        ({}, "404"),
        ({"/v1/models": (200, "[]"), "/metrics": (200, METRICS)}, "names no model"),
        ({"/v1/models": (200, MODELS), "/metrics": (200, "up 1\n")}, "cache_config_info"),
        ({"/v1/models": (200, MODELS), "/metrics": (500, "")}, "500"),
        (
            {"/v1/models": (200, r'{"data": [{"id": "a\u001b[2J"}]}'), "/metrics": (200, METRICS)},
            "names",
        ),
        ({"/v1/models": (200, MODELS), "/metrics": (200, "x" * (9 << 20))}, "larger"),
    ],
)
def test_servers_of_another_kind(octavo: Run, pages: dict[str, tuple[int, str]], hint: str) -> None:
    with serving(pages) as url:
        done = octavo("plan", "--server", url)
    assert done.code == 1
    assert hint in done.err
    assert done.err.count("\n") == 1


def test_a_protected_server_gets_its_key(octavo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"/v1/models": (200, MODELS), "/metrics": (200, METRICS)}
    with serving(pages, wanted="Bearer k-1") as url:
        assert "401" in octavo("plan", "--server", url).err
        monkeypatch.setenv("OCTAVO_API_KEY", "k-1")
        assert octavo("plan", "--server", url).code == 0
    monkeypatch.setenv("OCTAVO_API_KEY", "schlüssel")
    assert "OCTAVO_API_KEY" in octavo("plan", "--server", "http://127.0.0.1:9").err


@pytest.mark.parametrize(
    "flags", [("--gpu", "H200"), ("--explain",), ("--mtp",), ("--html", "x"), ("--svg", "x")]
)
def test_what_a_running_server_would_not_heed_is_refused(
    octavo: Run, flags: tuple[str, ...]
) -> None:
    done = octavo("plan", "--server", "http://127.0.0.1:9", *flags)
    assert (done.code, done.out) == (2, "")
    assert "--server" in done.err


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "127.0.0.1:8000", "http://", "http://[", "http://a:b", ""]
)
def test_wrong_urls(octavo: Run, url: str) -> None:
    done = octavo("plan", "--server", url)
    assert done.code == 2
    assert "http://127.0.0.1:8000" in done.err


def test_nobody_answers(octavo: Run) -> None:
    done = octavo("plan", "--server", "http://127.0.0.1:9")
    assert (done.code, done.out) == (1, "")
    assert "no server answers" in done.err


@pytest.mark.parametrize("blocks", ["0", "-5", "1e9", "", "9" * 40])
def test_wrong_counts_are_refused(blocks: str) -> None:
    with pytest.raises(EngineError, match="num_gpu_blocks"):
        observed(METRICS.replace('num_gpu_blocks="2000"', f'num_gpu_blocks="{blocks}"'), "m")
