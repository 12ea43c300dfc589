"""`octavo bench`: one sub-command for each benchmark. Owns their flags; measures nothing itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

import typer

from octavo.bench.datasets import GeneratedSharedPrefix
from octavo.cli.bench_kernels import kernels
from octavo.cli.bench_output import HtmlFile, JsonFile, check_files, show
from octavo.cli.engine_options import with_engine_options
from octavo.cli.flags import Command
from octavo.cli.load_options import Load, with_load_options
from octavo.cli.local import DEFAULT_MODEL
from octavo.core.config import EngineConfig

Model = Annotated[str, typer.Argument(help="alias, folder, .gguf file or hub id")]
Seed = Annotated[int, typer.Option(help="the same seed draws the same load")]


def make_bench_app() -> typer.Typer:
    """The sub-commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Measure an engine in this process, or a server.",
    )
    for command in (latency, throughput, serve, ablate, sweep, kernels):
        app.command()(command)
    return app


@with_engine_options
def latency(
    options: dict[str, Any],
    model: Model = DEFAULT_MODEL,
    batch_size: Annotated[int, typer.Option(min=1, max=4096, help="requests at once")] = 8,
    input_len: Annotated[int, typer.Option(min=1, max=1 << 20, help="prompt tokens of each")] = 32,
    output_len: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="tokens generated for each")
    ] = 128,
    num_iters_warmup: Annotated[
        int, typer.Option(min=0, max=1000, help="rounds before it counts")
    ] = 2,
    num_iters: Annotated[int, typer.Option(min=1, max=100_000, help="rounds that count")] = 10,
    seed: Seed = 0,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Time one batch of equal requests from start to end, over and over."""
    check_files(json_file, html_file)
    from octavo.bench.latency import LatencySettings
    from octavo.bench.latency import latency as measure

    settings = LatencySettings(
        batch_size=batch_size,
        input_len=input_len,
        output_len=output_len,
        num_iters_warmup=num_iters_warmup,
        num_iters=num_iters,
        seed=seed,
    )
    vocabulary = open_vocabulary(model, options)
    result = measure(open_engine(model, options), settings, vocabulary=vocabulary)
    show(result, json_file=json_file, html_file=html_file)


@with_engine_options
@with_load_options
def throughput(
    options: dict[str, Any],
    load: Load,
    model: Model = DEFAULT_MODEL,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Push a load through an engine in this process, all requests at once."""
    check_files(json_file, html_file)
    settings = load.settings()
    from octavo.bench.throughput import throughput as measure
    from octavo.bench.throughput import warm_up

    prompts = load.prompts(open_vocabulary(model, options))
    built = open_engine(model, options)
    warm_up(built, prompts[0])
    result = measure(built, prompts, settings=settings)
    show(result, json_file=json_file, html_file=html_file)


@with_load_options
def serve(
    load: Load,
    base_url: Annotated[str, typer.Option(help="the server to measure")] = "http://127.0.0.1:8000",
    tokenizer: Annotated[
        str, typer.Option(help="model whose vocabulary prompts are drawn from; loads no weights")
    ] = DEFAULT_MODEL,
    served_model_name: Annotated[
        str | None, typer.Option(help="model to ask for; default: the first that the server has")
    ] = None,
    request_rate: Annotated[
        float, typer.Option(help="requests a second; inf: all at once")
    ] = math.inf,
    burstiness: Annotated[
        float, typer.Option(help="1: Poisson arrivals; below: bursts; above: more even")
    ] = 1.0,
    max_concurrency: Annotated[
        int | None, typer.Option(min=1, help="requests on their way at once; default: no bound")
    ] = None,
    num_warmups: Annotated[int, typer.Option(min=0, help="requests that do not count")] = 1,
    goodput: Annotated[
        list[str] | None,
        typer.Option(help="objectives in ms, as in 'ttft:200 tpot:50'; also e2el"),
    ] = None,
    timeout_seconds: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="a request that takes longer has failed")
    ] = 600.0,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Send a load to a server, each request at its time, and time what comes back."""
    check_files(json_file, html_file)
    settings = {**load.settings(), "tokenizer": tokenizer}
    from octavo.bench.serve import Traffic, measured_by
    from octavo.bench.summary import objectives

    traffic = Traffic(
        base_url=base_url,
        model=served_model_name,
        request_rate=request_rate,
        burstiness=burstiness,
        max_concurrency=max_concurrency,
        timeout_seconds=timeout_seconds,
        goodput=objectives(goodput or ()),
        seed=load.seed,
    )
    traffic.check()
    vocabulary = open_vocabulary(tokenizer, {})
    prompts = load.prompts(vocabulary)
    # Of a seed of their own, so that they leave nothing in the cache that the load could find.
    warm_ups = replace(load, seed=~load.seed).prompts(vocabulary)[:num_warmups]
    result = measured_by(traffic, prompts, warm_ups=warm_ups, settings=settings)
    show(result, json_file=json_file, html_file=html_file)


def with_shared_prefix_load(command: Command) -> Command:
    """The load's flags, with the data set in which every mechanism has something to do."""
    return with_load_options(command, default=GeneratedSharedPrefix.name)


@with_engine_options
@with_shared_prefix_load
def ablate(
    options: dict[str, Any],
    load: Load,
    model: Model = DEFAULT_MODEL,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="what each request may generate at most; default: 4 × the longest output"
        ),
    ] = None,
    num_iters: Annotated[
        int, typer.Option(min=1, max=1000, help="rounds of each variant; the median one is shown")
    ] = 3,
    n: Annotated[
        int, typer.Option("--n", min=1, max=128, help="choices of each request, which fork")
    ] = 1,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Run one load with one mechanism of the engine off at a time.

    Unless given: lengths vary by 0.8 (--range-ratio), 16 requests run at once (--max-num-seqs), and
    the pool (--num-blocks) just holds them with everything on.
    """
    check_files(json_file, html_file)
    from octavo.bench import ablation

    ablation.check_options(options)
    if load.dataset_name == GeneratedSharedPrefix.name:
        # Where all answers are equally long, static batching loses nothing.
        load = replace(load, given={"range_ratio": 0.8, **load.given})
    settings = load.settings()
    options = {"max_num_seqs": 16, **options}
    prompts = load.prompts(open_vocabulary(model, options))
    block_tokens = options.get("block_size", EngineConfig().cache.block_size)
    if not {"num_blocks", "kv_cache_memory_bytes"} & set(options):
        options["num_blocks"] = ablation.tight_blocks(
            prompts,
            block_tokens=block_tokens,
            seats=options["max_num_seqs"],
            groups=ablation.kv_groups(model, block_tokens),
        )
    rounds = ablation.Rounds(
        max_tokens=max_tokens or 4 * max(one.output_tokens for one in prompts),
        num_iters=num_iters,
        choices=n,
    )
    result = ablation.ablate(
        lambda changes: open_engine(model, {**options, **changes}),
        prompts,
        rounds,
        settings=settings,
    )
    show(result, json_file=json_file, html_file=html_file)


@with_engine_options
def sweep(
    options: dict[str, Any],
    model: Model = DEFAULT_MODEL,
    max_num_batched_tokens: Annotated[
        str, typer.Option(metavar="LOW..HIGH", help="token budgets of a step, each twice the last")
    ] = "256..8192",
    num_streams: Annotated[
        int, typer.Option(min=1, max=4096, help="requests that are generating all the while")
    ] = 4,
    num_prompts: Annotated[
        int, typer.Option(min=1, max=4096, help="long prompts, one after the other")
    ] = 4,
    input_len: Annotated[int, typer.Option(min=1, max=1 << 20, help="tokens of each")] = 4096,
    stream_len: Annotated[
        int, typer.Option(min=8, max=1 << 20, help="tokens that a stream may generate")
    ] = 2048,
    seed: Seed = 0,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Show what the token budget of a step does to running streams and to long prompts."""
    check_files(json_file, html_file)
    from octavo.bench.sweep import SweepSettings, budgets
    from octavo.bench.sweep import sweep as measure

    steps = budgets(max_num_batched_tokens)
    settings = SweepSettings(
        num_streams=num_streams,
        num_prompts=num_prompts,
        input_len=input_len,
        stream_len=stream_len,
        seed=seed,
    )
    result = measure(
        lambda budget: open_engine(model, {**options, "max_num_batched_tokens": budget}),
        steps,
        settings,
        vocabulary=open_vocabulary(model, options),
    )
    show(result, json_file=json_file, html_file=html_file)


def open_vocabulary(model: str, options: dict[str, Any]) -> list[int]:
    """The ids to draw prompts from. Checks the engine's options first: reading takes longer."""
    from octavo.bench.vocabulary import plain_ids

    EngineConfig.of(model, **options)
    return plain_ids(model, skip_tokenizer=options.get("skip_tokenizer_init", False))


def open_engine(model: str, options: dict[str, Any]) -> Any:
    """Load the model that is measured in this process."""
    from octavo.bench.local_engine import open_built

    return open_built(model, options)
