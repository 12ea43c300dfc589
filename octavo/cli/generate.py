"""`octavo generate`: one prompt in, its text out as it comes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from octavo.cli import local
from octavo.cli.engine_options import with_engine_options
from octavo.cli.sampling_options import (
    BeamWidth,
    MaxTokens,
    MinP,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    sampling_params,
)
from octavo.cli.turn import Turn, play
from octavo.core.receipt import Receipt
from octavo.engine.types import GenerateRequest


@with_engine_options
def generate(
    prompt: Annotated[str, typer.Argument(help="the prompt; - reads standard input")],
    options: dict[str, Any],
    model: Annotated[str, typer.Option(help="alias, folder, .gguf file or hub id")] = (
        local.DEFAULT_MODEL
    ),
    chat: Annotated[
        bool, typer.Option("--chat", help="put the prompt through the model's chat template")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object instead of the text")
    ] = False,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    max_tokens: MaxTokens = None,
    beam_width: BeamWidth = None,
) -> None:
    """Continue a prompt and print the text as it comes."""
    text = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "user", "content": text}] if chat else None
    engine = local.open_engine(model, options)
    try:
        params = sampling_params(
            engine.info.defaults,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=tuple(stop or ()),
            max_tokens=max_tokens,
            beam_width=beam_width,
        )
        request = GenerateRequest(prompt=None if chat else text, messages=messages, params=params)
        turn = play(engine.stream(request), skip if as_json else show)
        print(json.dumps(report(engine.info.model, turn)) if as_json else "")
        if turn.interrupted:
            raise typer.Exit(130)
    finally:
        engine.close()


def show(text: str) -> None:
    """Text as it comes; characters that the terminal's encoding lacks are escaped, not fatal."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def skip(text: str) -> None:
    """The text comes later, in the JSON object."""
    del text


def report(model: str, turn: Turn) -> dict[str, Any]:
    """The answer with its numbers; times in seconds. An interrupted one has neither bill."""
    return {
        "model": model,
        "text": turn.text,
        "token_ids": list(turn.token_ids),
        "finish_reason": turn.finish_reason,
        "interrupted": turn.interrupted,
        "usage": None if turn.usage is None else asdict(turn.usage),
        "receipt": None if turn.receipt is None else receipt_report(turn.receipt),
        "ttft_seconds": turn.ttft_seconds,
        "seconds": turn.seconds,
        "tokens_per_second": turn.tokens_per_second,
    }


def receipt_report(receipt: Receipt) -> dict[str, Any]:
    """The receipt's fields, and the sums that are read most. Not its account books."""
    public = {name: value for name, value in asdict(receipt).items() if not name.startswith("_")}
    return {**public, "written": receipt.written, "slots_lost": receipt.slots_lost}
