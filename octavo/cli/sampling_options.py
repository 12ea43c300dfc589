"""Sampling flags that `generate` and `chat` share. Bounds are the engine's to check."""

from __future__ import annotations

from typing import Annotated

import typer

Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token")]
TopP = Annotated[float, typer.Option(help="sample from the likeliest tokens of this probability")]
TopK = Annotated[int, typer.Option(help="sample from this many likeliest tokens; 0: from all")]
MinP = Annotated[float, typer.Option(help="drop tokens below this part of the best probability")]
Seed = Annotated[int | None, typer.Option(help="repeat the same sample; default: a new one")]
Stop = Annotated[
    list[str] | None, typer.Option(help="end before this text; may be given several times")
]
MaxTokens = Annotated[int, typer.Option(help="tokens to generate at most")]

TEMPERATURE = 0.2  # what the default model's authors suggest; a small model rambles above it
MAX_TOKENS = 1024
