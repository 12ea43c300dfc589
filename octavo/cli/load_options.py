"""The flags that say what a benchmark's load is, made from the fields of the data sets."""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from octavo.bench.datasets import DATASETS, Prompt, RandomPrompts, dataset
from octavo.cli.flags import Command, only_given, with_flags

PANEL = "Load"


@dataclass(frozen=True, slots=True)
class Load:
    """What was asked for: a data set by name, its sizes where given, and the seed."""

    dataset_name: str
    seed: int
    given: Mapping[str, Any]

    def settings(self) -> dict[str, Any]:
        """All of it with defaults filled in. Raises ConfigError naming a wrong flag."""
        made: Any = dataset(self.dataset_name, self.given)
        sizes = {one.name: getattr(made, one.name) for one in fields(made)}
        return {"dataset_name": self.dataset_name, "seed": self.seed, **sizes}

    def prompts(self, vocabulary: Sequence[int]) -> list[Prompt]:
        """The requests, the same ones for the same seed."""
        made = dataset(self.dataset_name, self.given)
        return made.prompts(random.Random(self.seed), vocabulary)


def with_load_options(command: Command, *, default: str = RandomPrompts.name) -> Command:
    """`command` with the flags of every data set; it gets a Load as `load`."""

    def gather(values: Mapping[str, Any]) -> Load:
        given = only_given(values)
        return Load(given.pop("dataset_name"), given.pop("seed"), given)

    name = typer.Option(
        help=f"what the requests look like ({', '.join(DATASETS)})", rich_help_panel=PANEL
    )
    seed = typer.Option(help="the same seed draws the same load", rich_help_panel=PANEL)
    flags = [
        _flag("dataset_name", Annotated[str, name], default),
        _flag("seed", Annotated[int, seed], 0),
    ]
    flags += [_flag(size, *kind) for size, kind in _sizes().items()]
    return with_flags(command, flags, into="load", gather=gather)


def _flag(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _sizes() -> dict[str, tuple[Any]]:
    """Each size by name with its annotation; the help tells its meaning in each data set."""
    found: dict[str, list[str]] = {}
    kinds: dict[str, type] = {}
    texts: dict[str, str] = {}
    for title, kind in DATASETS.items():
        for one in fields(kind):
            found.setdefault(one.name, []).append(f"{title}: {one.default}")
            kinds[one.name] = float if one.type == "float" else int
            texts.setdefault(one.name, one.metadata["help"])
    return {
        name: (
            Annotated[
                kinds[name] | None,
                typer.Option(
                    help=f"{texts[name]} ({'; '.join(defaults)})",
                    show_default=False,
                    rich_help_panel=PANEL,
                ),
            ],
        )
        for name, defaults in found.items()
    }
