"""What a plan is asked for: hardware, formats, lengths, objectives, prices. Checked once, here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from octavo.core.errors import ConfigError
from octavo.plan.lengths import Lengths, fixed
from octavo.plan.memory import DEFAULT_UTILISATION
from octavo.pricing.gpu_prices import DRAM_GB_HOUR, SSD_GB_HOUR

DEFAULT_LENGTH = 1312
MAX_CONTEXT = 1 << 28
MAX_GPUS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Sizes in bytes of the whole model or of one GPU as named; prices in dollars.

    context     longest sequence a request may become; None: the model's own maximum
    lengths     tokens of the requests that are to fit
    batch       sequences decoded together; None: as many as fit
    num_blocks  blocks that an engine reports; replaces the memory bill
    """

    gpu: str = "H100"
    gpus: int = 1
    weights: str = "auto"
    kv_cache_dtype: str = "auto"
    context: int | None = None
    block_size: int = 16
    lengths: Lengths = field(default_factory=lambda: fixed(DEFAULT_LENGTH))
    batch: int | None = None
    itl_ms: float | None = None
    ttft_ms: float | None = None
    utilisation: float = DEFAULT_UTILISATION
    memory_bytes: int | None = None
    weight_bytes: int | None = None
    activation_bytes: int | None = None
    non_torch_bytes: int | None = None
    num_blocks: int | None = None
    mfu_prefill: float | None = None
    mfu_decode: float | None = None
    bandwidth_efficiency: float | None = None
    gpu_price: float | None = None
    dram_gb_hour: float = DRAM_GB_HOUR
    ssd_gb_hour: float = SSD_GB_HOUR
    link_gbit: float = 200.0
    hold_seconds: float = 300.0

    def __post_init__(self) -> None:
        _whole("gpus", self.gpus, 1, MAX_GPUS)
        _whole("context", self.context, 1, MAX_CONTEXT)
        _whole("block_size", self.block_size, 1, 1 << 16)
        _whole("batch", self.batch, 1, 1 << 20)
        _whole("num_blocks", self.num_blocks, 1, 1 << 40)
        for name in ("itl_ms", "ttft_ms", "link_gbit", "hold_seconds"):
            _number(name, getattr(self, name), 1e9)
        for name in ("gpu_price", "dram_gb_hour", "ssd_gb_hour"):
            _number(name, getattr(self, name), 1e6)
        for name in ("utilisation", "mfu_prefill", "mfu_decode", "bandwidth_efficiency"):
            _number(name, getattr(self, name), 1.0)


def _whole(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise ConfigError(
            f"{name} must be a whole number from {low} to {high}; it is {value}", param=name
        )


def _number(name: str, value: float | None, high: float) -> None:
    if value is not None and not (math.isfinite(value) and 0 < value <= high):
        raise ConfigError(f"{name} must be above 0 and at most {high:g}; it is {value}", param=name)
