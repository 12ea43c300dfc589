"""Sampling flags that `generate` and `chat` share. Bounds are the engine's to check."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import GenerationDefaults

TEMPERATURE = 0.2  # what the default model's authors suggest; a small model rambles above it
MAX_TOKENS = 1024

Temperature = Annotated[
    float | None,
    typer.Option(
        help=f"0 always takes the likeliest token; default: the model's own, else {TEMPERATURE}"
    ),
]
TopP = Annotated[
    float | None, typer.Option(help="sample from the likeliest tokens of this probability")
]
TopK = Annotated[
    int | None, typer.Option(help="sample from this many likeliest tokens; 0: from all")
]
MinP = Annotated[
    float | None, typer.Option(help="drop tokens below this part of the best probability")
]
Seed = Annotated[int | None, typer.Option(help="repeat the same sample; default: a new one")]
Stop = Annotated[
    list[str] | None, typer.Option(help="end before this text; may be given several times")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(help=f"tokens to generate at most; default: the model's own, else {MAX_TOKENS}"),
]

BeamWidth = Annotated[
    int | None, typer.Option(help="search with this many beams, instead of sampling")
]


def sampling_params(defaults: GenerationDefaults, **flags: Any) -> SamplingParams:
    """What the flags say; for those that are None what the model recommends, else ours."""
    given = {name: value for name, value in flags.items() if value is not None}
    ours = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
    if "beam_width" in given:
        del ours["temperature"]  # a search draws nothing
    missing = {name: value for name, value in ours.items() if getattr(defaults, name) is None}
    return defaults.params(**{**missing, **given})
