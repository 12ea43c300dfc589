"""`octavo bench kernels`: its flags. Needs no model."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli.bench_output import HtmlFile, JsonFile, check_files, show
from octavo.cli.flags import only_given
from octavo.core.errors import ConfigError

MOST_ROWS, MOST_WIDTH, MOST_CONTEXT = 4096, 1 << 16, 1 << 17


def kernels(
    ops: Annotated[
        str | None, typer.Option(help="which, as in 'linear,attention'; default: all")
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option(help="of weights as GGUF names them, and of K and V; default: the usual ones"),
    ] = None,
    rows: Annotated[str, typer.Option(help="rows of a step, one run for each")] = "1,64",
    hidden_size: Annotated[
        int, typer.Option(min=256, max=MOST_WIDTH, help="values that go into a product")
    ] = 1024,
    intermediate_size: Annotated[
        int, typer.Option(min=256, max=MOST_WIDTH, help="columns of a product")
    ] = 3072,
    context: Annotated[
        int, typer.Option(min=1, max=MOST_CONTEXT, help="tokens that attention reads for each row")
    ] = 1024,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="default: the cores this process may use")
    ] = None,
    min_seconds: Annotated[
        float, typer.Option(min=0.0, max=60.0, help="how long each is measured at least")
    ] = 0.2,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Time each kernel alone, beside what this machine can do at most. Needs no model."""
    check_files(json_file, html_file)
    counts = _counts(rows)
    from octavo.bench.kernels import KernelSettings
    from octavo.bench.kernels import kernels as measure
    from octavo.engine.machine import usable_threads

    names = {"ops": ops, "formats": formats}
    settings = KernelSettings(
        **{field: text.split(",") for field, text in only_given(names).items()},
        rows=counts,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        context=context,
        threads=threads or usable_threads(),
        min_seconds=min_seconds,
    )
    show(measure(settings), json_file=json_file, html_file=html_file)


def _counts(text: str) -> list[int]:
    """'1,64' → [1, 64]."""
    numbers = [int(part) for part in text.split(",") if part.isascii() and part.isdigit()]
    if len(numbers) != text.count(",") + 1 or not all(1 <= n <= MOST_ROWS for n in numbers):
        raise ConfigError(
            f"rows must be numbers from 1 to {MOST_ROWS} with commas between; got {text[:40]!a}",
            param="rows",
        )
    return numbers
