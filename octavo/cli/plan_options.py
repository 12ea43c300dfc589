"""The flags that say what a plan is asked for, and how they become the planner's own value."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from octavo.cli.flags import Command, only_given, with_flags
from octavo.core.errors import ConfigError

if TYPE_CHECKING:
    from octavo.plan.ask import Ask

PANEL = "Plan"
SIZES = ("memory", "weight_size", "activation_size", "non_torch_size")


class Flag(NamedTuple):
    """`type` is that of a value that was given; a flag that was not is None."""

    name: str
    type: Any
    help: str


FLAGS = (
    Flag("gpu", str, "GPU of the catalogue; default: H100"),
    Flag("gpus", int, "tensor-parallel ranks, one GPU each; default: 1"),
    Flag("weights", str, "format of the weights: auto, bf16, fp8, int8, fp4, mxfp4, int4"),
    Flag("kv_cache_dtype", str, "format of K and V: auto, bfloat16, fp8, int8, nvfp4, q8_0 ..."),
    Flag("context", int, "longest sequence in tokens; default: the model's maximum"),
    Flag("length", int, "tokens of each request; default: 1312"),
    Flag("lengths", Path, "trace whose lengths requests have: .jsonl, .csv, .json, or .xz of one"),
    Flag("block_size", int, "tokens of a block; default: 16"),
    Flag("batch", int, "sequences decoded at once; default: as many as fit"),
    Flag("itl_ms", float, "objective between tokens: which step budget meets it?"),
    Flag("ttft_ms", float, "objective to the first token of the longest request"),
    Flag("memory", str, "of one GPU, as 80GB or 79.18GiB; default: the catalogue's"),
    Flag("gpu_memory_utilization", float, "share that the engine takes; default: 0.9"),
    Flag("weight_size", str, "of all weights, as 35GB; default: from --weights"),
    Flag("activation_size", str, "peak of a step on one GPU, as 4.76GiB"),
    Flag("non_torch_size", str, "driver and communication on one GPU, as 0.13GiB"),
    Flag("num_blocks", int, "blocks that an engine reports, in place of the bill"),
    Flag("mfu_prefill", float, "share of peak arithmetic in prefill"),
    Flag("mfu_decode", float, "share of peak arithmetic in decode"),
    Flag("bandwidth_efficiency", float, "share of peak bandwidth in decode"),
    Flag("gpu_price", float, "$ an hour of one GPU; default: the dated catalogue"),
    Flag("dram_gb_hour", float, "$ of a GB of DRAM and hour"),
    Flag("ssd_gb_hour", float, "$ of a GB of SSD and hour"),
    Flag("link_gbit", float, "Gb/s of the link that K and V are fetched over; default: 200"),
    Flag("hold_seconds", float, "how long a written prefix is kept; default: 300"),
)


@dataclass(frozen=True, slots=True)
class Demands:
    """The flags that were given."""

    given: Mapping[str, Any]

    def ask(self) -> Ask:
        """Raises ConfigError naming a wrong flag."""
        from octavo.cli.plan_model import read_lengths
        from octavo.plan.ask import Ask
        from octavo.plan.lengths import fixed
        from octavo.plan.sizes import parse_size

        given = dict(self.given)
        if "length" in given and "lengths" in given:
            raise ConfigError("give --length or --lengths, not both", param="lengths")
        if "lengths" in given:
            given["lengths"] = read_lengths(given["lengths"])
        if "length" in given:
            given["lengths"] = fixed(given.pop("length"))
        if "gpu_memory_utilization" in given:
            given["utilisation"] = given.pop("gpu_memory_utilization")
        for name in SIZES:
            if name in given:
                size = parse_size(given.pop(name), name)
                given[f"{name.removesuffix('_size')}_bytes"] = size
        return Ask(**given)


def with_plan_options(command: Command) -> Command:
    """`command` with a flag for each demand; it gets them as `demands`."""
    flags = [
        inspect.Parameter(
            flag.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                flag.type | None, typer.Option(help=flag.help, rich_help_panel=PANEL)
            ],
        )
        for flag in FLAGS
    ]
    return with_flags(
        command, flags, into="demands", gather=lambda values: Demands(only_given(values))
    )
