"""`octavo serve`: the engine behind HTTP. Owns what is printed; knows no routes."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.engine_options import with_engine_options
from octavo.cli.local import DEFAULT_MODEL
from octavo.cli.serve_options import Holding, with_holding_options
from octavo.cli.telemetry_options import TelemetryOptions, with_telemetry_options
from octavo.cli.units import count, size
from octavo.core.config import EngineConfig

if TYPE_CHECKING:
    from octavo.engine.async_engine import AsyncEngine
    from octavo.engine.info import EngineInfo

HOST = "127.0.0.1"
PORT = 8000


@with_telemetry_options
@with_engine_options
@with_holding_options
def serve(
    options: dict[str, Any],
    holding: Holding,
    telemetry: TelemetryOptions,
    model: Annotated[str, typer.Argument(help="alias, folder, .gguf file or hub id")] = (
        DEFAULT_MODEL
    ),
    host: Annotated[str, typer.Option(help="address to listen on")] = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port")] = PORT,
    clamp_max_tokens: Annotated[
        bool, typer.Option(help="cut a max_tokens beyond the room to it, or refuse it")
    ] = True,
    keep_agent_headers: Annotated[
        bool,
        typer.Option(
            "--keep-agent-headers",
            help="do not drop the line that coding agents put first in each system prompt of "
            "/v1/messages; new in every request, it keeps them from reading the cache",
        ),
    ] = False,
) -> None:
    """Serve a model over the OpenAI and Anthropic APIs."""
    config = EngineConfig.of(model, **options)
    prices = telemetry.check()
    from octavo.server import listen
    from octavo.server.access.doors import Doors
    from octavo.server.access.watchdog import Watchdog

    limits = replace(holding.limits(), clamp_max_tokens=clamp_max_tokens)
    hosts = listen.own_hosts(host)
    keyring = holding.access.keyring(on_loopback=hosts is not None)
    # The port comes first: finding it taken after a long load would be a pity.
    with listen.bound_socket(host, port) as listener, telemetry.log():
        engine = load_engine(config)
        from octavo.server.app import create_app

        doors = Doors()
        seen = telemetry.over(engine, prices)
        app = create_app(
            engine,
            limits=limits,
            hosts=hosts,
            keyring=keyring,
            share_cache=holding.access.share_cache,
            doors=doors,
            telemetry=seen,
            keep_agent_headers=keep_agent_headers,
        )
        url = address(host, listener.getsockname()[1])
        if hosts is None and not keyring:
            print(OPEN_WARNING, file=sys.stderr)
        listen.serve(
            app,
            listener,
            limits=limits,
            doors=doors,
            watchdog=Watchdog(engine, doors, seconds=limits.watchdog_seconds),
            started=lambda: announce(engine.info, url, protected=bool(keyring)),
        )
    print("Stopped.")


OPEN_WARNING = "Whoever reaches this address can use the model: there are no API keys."


def load_engine(config: EngineConfig) -> AsyncEngine:
    """Fetch and load the model, showing progress."""
    from octavo.compute.progress import TerminalProgress
    from octavo.engine.async_engine import AsyncEngine

    return AsyncEngine.from_config(config, progress=TerminalProgress())


def address(host: str, port: int) -> str:
    """The URL to type; an address that means all interfaces is reached here by loopback."""
    name = {"0.0.0.0": HOST, "::": "::1", "": HOST}.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def announce(info: EngineInfo, url: str, *, protected: bool) -> None:
    """What runs, where, and how much fits. `protected`: by keys."""
    print("\n".join(announcement(info, url, protected=protected)), flush=True)


def announcement(info: EngineInfo, url: str, *, protected: bool) -> list[str]:
    """The lines of `announce`."""
    key = " -H 'Authorization: Bearer YOUR-KEY'" if protected else ""
    # Temperature 0: the first answer of a small model should be its best one.
    question = [{"role": "user", "content": "What is the capital of Japan?"}]
    body = {"model": info.model, "messages": question, "temperature": 0}
    cache_bytes = info.capacity_tokens * info.bytes_per_token
    refused = [f"           not taken: {reason}" for reason in info.not_taken]
    guessing = [f"  guessing {info.speculation_note}"] if info.speculation_note != "off" else []
    stored = info.backend.startswith("native")
    weights = "weights as stored" if stored else info.dtype
    if info.quantization is not None:
        weights = f"weights in {info.quantization}"
    longest = min(info.max_model_len, info.capacity_tokens + 1)  # the last token needs no slot
    return [
        f"Octavo serves {info.model} at {url}/v1",
        f"  model    {info.source}, {weights} on {info.device}",
        f"  backend  {info.backend}",
        *refused,
        f"  KV cache {count(info.num_blocks)} blocks of {info.block_tokens} tokens: "
        f"{count(info.capacity_tokens)} tokens fit, {size(cache_bytes)} "
        f"({size(info.bytes_per_token)} a token, {info.kv_cache_dtype})",
        f"  memory   {info.memory_note}",
        *guessing,
        f"  limits   {count(longest)} tokens a request, {count(info.max_num_seqs)} "
        f"requests at once, {count(info.max_num_batched_tokens)} tokens a step",
        f"  sampling {info.defaults}",
        "Try:",
        f"  curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' \\",
        f"    -d {shlex.quote(json.dumps(body))}",
        "Ctrl-C stops it.",
    ]
