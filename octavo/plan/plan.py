"""One model on one kind of machine: everything the reports are made of, computed once.

Holds values and the reasons for those that are missing; formats nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.core.errors import ConfigError
from octavo.plan.ask import Ask
from octavo.plan.calibration import (
    CALIBRATIONS,
    MAX_BATCH,
    MAX_CONTEXT,
    MAX_GPUS,
    Calibration,
    exactly,
)
from octavo.plan.fits import PAGED_BLOCKS, Allocator, Room
from octavo.plan.formats import KVFormat, kv_format
from octavo.plan.fragmentation import Shares, steady_shares_of
from octavo.plan.geometry import Attention, Geometry
from octavo.plan.memory import MemoryBill, bill
from octavo.plan.model import PlannedModel
from octavo.plan.money import Money
from octavo.plan.roofline import Roofline
from octavo.pricing.gpu_prices import GPU_PRICES, GPUPrice
from octavo.pricing.gpus import GPU, gpu_called

FALLBACK_CONTEXT = 131_072
LENGTHS = (4096, 8192, 32_768, 131_072)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`no_room` and `no_times`: why the figures that need them are missing."""

    model: PlannedModel
    ask: Ask
    fmt: KVFormat
    kv_rule: str
    gpu: GPU
    context: int
    bill: MemoryBill
    room: Room | None
    no_room: str
    roofline: Roofline | None
    no_times: str
    price: GPUPrice | None
    money: Money | None

    @property
    def geometry(self) -> Geometry:
        return self.model.geometry

    @property
    def tp(self) -> int:
        return self.ask.gpus

    def remarks(self) -> list[str]:
        """What a reader should know beside the figures: what is missing, and odd demands."""
        found = [f"Not shown: {reason}" for reason in dict.fromkeys((self.no_room, self.no_times))]
        found = [line for line in found if line != "Not shown: "]
        longest = self.model.max_position
        if longest is not None and self.context > longest:
            found.append(
                f"A context of {self.context:,} is beyond the {longest:,} positions of the config"
            )
        beyond = sum(length > self.context for length in self.ask.lengths.tokens)
        if beyond:
            n = len(self.ask.lengths.tokens)
            found.append(f"{beyond:,} of {n:,} lengths are beyond the context of {self.context:,}")
        fits = self.paged()
        if self.roofline is not None and fits is not None and fits.requests < self.batch:
            found.append(
                f"Times and dollars are of {self.batch:,} requests at once; {fits.requests:,} fit"
            )
        return found

    @property
    def longest_shown(self) -> tuple[int, ...]:
        """Lengths that tables show: the usual ones and the maximum."""
        kept = [n for n in LENGTHS if n <= self.context]
        return tuple(dict.fromkeys([*kept, self.context]))

    def allocators(self) -> list[Allocator]:
        """Requests by each way of sharing the room; nothing without a room."""
        if self.room is None:
            return []
        lengths = self.ask.lengths.tokens
        longest = max(self.context, max(lengths))
        blocks = dict.fromkeys([*PAGED_BLOCKS, self.ask.block_size])
        return [
            self.room.reserved(lengths, longest),
            self.room.reserved_pow2(lengths, longest),
            *(self.room.paged(lengths, block) for block in sorted(blocks)),
            self.room.exact(lengths),
        ]

    def paged(self) -> Allocator | None:
        """With the block size that was asked for."""
        if self.room is None:
            return None
        return self.room.paged(self.ask.lengths.tokens, self.ask.block_size)

    @property
    def batch(self) -> int:
        """Sequences decoded together: as asked, else as many as fit, within the calibration."""
        fits = self.paged()
        found = self.ask.batch or (fits.requests if fits else 1)
        return max(1, min(found, MAX_BATCH))

    def waste(self) -> dict[str, Shares]:
        """Where the room goes in steady state by each allocator; only of a trace that tells prompts
        and answers apart, and of a model whose layers all keep every token."""
        plain = all(isinstance(p, Attention) and p.kind.closed for p in self.geometry.parts)
        if self.room is None or not self.ask.lengths.pairs or not plain:
            return {}
        return steady_shares_of(
            self.ask.lengths.pairs,
            slots=self.room.longest_context(),
            max_tokens=self.context,
            block_tokens=self.ask.block_size,
        )

    @property
    def prompt(self) -> int:
        """Tokens of the prompt whose first token is timed: the longest of the lengths."""
        return max(self.ask.lengths.tokens)

    @property
    def mean_length(self) -> int:
        return max(1, round(self.ask.lengths.mean))


def planned(model: PlannedModel, ask: Ask) -> Plan:
    """Resolve the ask for `model`; raises ConfigError."""
    name = model.kv_dtype if ask.kv_cache_dtype == "auto" else ask.kv_cache_dtype
    rule = model.kv_rule if ask.kv_cache_dtype == "auto" else "as asked"
    fmt = kv_format(name)
    gpu = gpu_called(ask.gpu)
    context = ask.context or model.max_position or FALLBACK_CONTEXT
    found = bill(
        model,
        memory_bytes=ask.memory_bytes or gpu.usable_bytes,
        tp=ask.gpus,
        weights=ask.weights,
        utilisation=ask.utilisation,
        weight_bytes=ask.weight_bytes,
        activation_bytes=ask.activation_bytes,
        non_torch_bytes=ask.non_torch_bytes,
    )
    room, no_room = _room(model, fmt, found, ask)
    roofline, no_times = _roofline(model, fmt, gpu, found, ask, no_room=no_room)
    price = _price(gpu, ask)
    return Plan(
        model=model,
        ask=ask,
        fmt=fmt,
        kv_rule=rule,
        gpu=gpu,
        context=context,
        bill=found,
        room=room,
        no_room=no_room,
        roofline=roofline,
        no_times=no_times,
        price=price,
        money=_money(roofline, price, ask),
    )


def _room(
    model: PlannedModel, fmt: KVFormat, found: MemoryBill, ask: Ask
) -> tuple[Room | None, str]:
    room_bytes = found.kv_room_bytes
    if ask.num_blocks is not None:
        block_bytes = model.geometry.early_token_bytes(fmt, ask.gpus) * ask.block_size
        room_bytes = ask.num_blocks * block_bytes
    if room_bytes is None:
        return None, found.weights_rule
    if room_bytes == 0:
        return None, f"the weights and the rest leave no room for K and V ({found.formula()})"
    return Room(geometry=model.geometry, fmt=fmt, room_bytes=room_bytes, tp=ask.gpus), ""


def _roofline(
    model: PlannedModel, fmt: KVFormat, gpu: GPU, found: MemoryBill, ask: Ask, *, no_room: str
) -> tuple[Roofline | None, str]:
    """What is missing for times is refused only where an objective depends on them."""
    calibration = calibrated(gpu, ask)
    reason = ""
    if calibration is None:
        reason = (
            f"no calibration for {gpu.name} (there are {', '.join(CALIBRATIONS)}): give "
            "--mfu-prefill, --mfu-decode and --bandwidth-efficiency"
        )
    elif model.parameters is None:
        reason = f"the number of weights of {model.name} is not known"
    elif no_room:
        reason = no_room
    elif ask.gpus > MAX_GPUS:
        reason = f"{ask.gpus} GPUs: times are calibrated for one machine of up to {MAX_GPUS}"
    else:
        reason = _beyond(ask)
    if calibration is None or model.parameters is None or found.weights_bytes is None or reason:
        if ask.itl_ms is not None or ask.ttft_ms is not None:
            raise ConfigError(f"itl_ms and ttft_ms need times: {reason}", param="itl_ms")
        return None, reason
    name = ask.weights if ask.weights != "auto" else model.weight_dtype or "bf16"
    return Roofline(
        model=model,
        parameters=model.parameters,
        fmt=fmt,
        gpu=gpu,
        gpus=ask.gpus,
        weight_bytes=found.weights_bytes * ask.gpus,
        flops=gpu.flops(name),
        calibration=calibration,
    ), ""


def _beyond(ask: Ask) -> str:
    """Why no calibration covers these demands; "" where one may."""
    timed = max(ask.lengths.tokens) if ask.ttft_ms is not None else round(ask.lengths.mean)
    if timed > MAX_CONTEXT:
        return f"requests of {timed:,} tokens: times are calibrated up to {MAX_CONTEXT:,}"
    if (ask.batch or 0) > MAX_BATCH:
        return f"a batch of {ask.batch:,}: times are calibrated up to {MAX_BATCH:,}"
    return ""


def calibrated(gpu: GPU, ask: Ask) -> Calibration | None:
    """The chip's row, each share replaced where the user gives one."""
    given = {
        name: exactly(value)
        for name, value in (
            ("prefill_mfu", ask.mfu_prefill),
            ("decode_mfu", ask.mfu_decode),
            ("bandwidth", ask.bandwidth_efficiency),
        )
        if value is not None
    }
    found = CALIBRATIONS.get(gpu.name)
    if found is None:
        return Calibration(**given, source="as given") if len(given) == 3 else None
    source = f"{found.source}; {', '.join(given)} as given" if given else found.source
    return replace(found, **given, source=source)


def _price(gpu: GPU, ask: Ask) -> GPUPrice | None:
    if ask.gpu_price is not None:
        price = ask.gpu_price
        return GPUPrice(low=price, typical=price, high=price, date="today", sources="as given")
    return GPU_PRICES.get(gpu.name)


def _money(roofline: Roofline | None, price: GPUPrice | None, ask: Ask) -> Money | None:
    if price is None or roofline is None:
        return None
    return Money(
        roofline=roofline,
        gpu_hour=price.typical,
        dram_gb_hour=ask.dram_gb_hour,
        ssd_gb_hour=ask.ssd_gb_hour,
    )


def with_query_heads(model: PlannedModel) -> Geometry:
    """The same model if each query head had K and V of its own: what grouped queries save."""
    return Geometry(
        tuple(
            replace(part, kv_heads=model.query_heads) if isinstance(part, Attention) else part
            for part in model.geometry.parts
        )
    )
