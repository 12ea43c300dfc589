"""`octavo bench`: one sub-command for each benchmark. Owns their flags; measures nothing itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from octavo.cli.bench_output import HtmlFile, JsonFile, check_files, show
from octavo.cli.engine_options import with_engine_options
from octavo.cli.load_options import Load, with_load_options
from octavo.cli.local import DEFAULT_MODEL

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
    for command in (latency, throughput):
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


def open_vocabulary(model: str, options: dict[str, Any]) -> list[int]:
    """The ids to draw prompts from. Checks the engine's options first: reading takes longer."""
    from octavo.bench.vocabulary import plain_ids
    from octavo.core.config import EngineConfig

    EngineConfig.of(model, **options)
    return plain_ids(model, skip_tokenizer=options.get("skip_tokenizer_init", False))


def open_engine(model: str, options: dict[str, Any]) -> Any:
    """Load the model that is measured in this process."""
    from octavo.bench.local_engine import open_built

    return open_built(model, options)
