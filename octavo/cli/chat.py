"""`octavo chat`: a conversation in the terminal, with what each turn took from the cache."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Annotated, Any

import typer

from octavo.cli import local
from octavo.cli.engine_options import with_engine_options
from octavo.cli.generate import show
from octavo.cli.sampling_options import (
    MaxTokens,
    MinP,
    Seed,
    Temperature,
    TopK,
    TopP,
    sampling_params,
)
from octavo.cli.turn import play
from octavo.core.errors import RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.types import GenerateRequest

HELP = "/reset starts again, /exit leaves, Ctrl-C ends an answer."


@with_engine_options
def chat(
    options: dict[str, Any],
    model: Annotated[str, typer.Argument(help="alias, folder, .gguf file or hub id")] = (
        local.DEFAULT_MODEL
    ),
    system: Annotated[str | None, typer.Option(help="system message")] = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    max_tokens: MaxTokens = None,
) -> None:
    """Talk to a model; each turn shows what came from the cache and how fast it was."""
    engine = local.open_engine(model, options)
    params = sampling_params(
        engine.info.defaults,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
    )
    try:
        print(f"{engine.info.model}. {HELP}")
        Conversation(engine, params, system).run()
    finally:
        engine.close()


class Conversation:
    """The messages so far, and the loop that adds to them."""

    def __init__(
        self, engine: local.LocalEngine, params: SamplingParams, system: str | None
    ) -> None:
        self._engine = engine
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages: list[dict[str, Any]] = [*self._opening]

    def run(self) -> None:
        """Read and answer until /exit or the end of the input."""
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # line editing and history, where there is one
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "").strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                print(f"\n{HELP}")
                continue
            if line == "/exit":
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._answer(line)

    def _command(self, line: str) -> None:
        """/reset keeps the system message; anything else is explained."""
        if line == "/reset":
            self._messages = [*self._opening]
            print("A new conversation.")
        else:
            print(HELP)

    def _answer(self, line: str) -> None:
        """One turn. A request that is refused leaves the conversation as it was."""
        messages = [*self._messages, {"role": "user", "content": line}]
        request = GenerateRequest(messages=messages, params=self._params)
        try:
            turn = play(self._engine.stream(request), show)
        except RequestError as error:
            message = error.message.rstrip(".")
            print(f"octavo: {message}. /reset starts a new conversation.", file=sys.stderr)
            return
        print()
        print_dim(turn.summary())
        # An interrupted answer stays: the next turn finds it in the cache as far as it got.
        self._messages = [*messages, {"role": "assistant", "content": turn.text}]


def print_dim(line: str) -> None:
    """A line that stands back behind the conversation."""
    from rich.console import Console

    Console(highlight=False).print(line, style="dim", markup=False)
