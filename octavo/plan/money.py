"""Dollars: of a million tokens by kind, of holding a token's K and V, of the choice between them.

Takes rates from the roofline and formulas from `pricing.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.plan.roofline import Roofline, typical
from octavo.pricing.cost import break_even_seconds, dollars_held, dollars_per_million

GB = 10**9
MILLION = 1_000_000
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """`gpu_hour`: dollars an hour of one GPU. Prices of memory below HBM: of a GB and hour."""

    roofline: Roofline
    gpu_hour: float
    dram_gb_hour: float
    ssd_gb_hour: float

    @property
    def machine_hour(self) -> float:
        """Dollars an hour of all GPUs."""
        return self.roofline.gpus * self.gpu_hour

    @property
    def hbm_gb_hour(self) -> float:
        """A GPU's whole price spread over its memory: an upper bound, since the chip also works."""
        return self.gpu_hour / (self.roofline.gpu.usable_bytes / GB)

    def tier_prices(self) -> dict[str, float]:
        """Dollars of a GB and hour by where K and V lie."""
        return {"hbm": self.hbm_gb_hour, "dram": self.dram_gb_hour, "ssd": self.ssd_gb_hour}

    def input_per_million(self, context: int) -> float:
        """Of prompt tokens that are computed."""
        rate = self.roofline.prefill_tokens_per_second(context)
        return dollars_per_million(self.machine_hour, rate)

    def cache_write_per_million(self, context: int, *, hold_seconds: float) -> float:
        """Computed, and kept in HBM for `hold_seconds`."""
        held = dollars_held(
            self.token_bytes(context), hold_seconds, dollars_per_gb_hour=self.hbm_gb_hour
        )
        return self.input_per_million(context) + held * MILLION

    def cache_read_per_million(self, context: int) -> float:
        """Found in HBM: the machine's time to read a token's bytes once."""
        gpu, share = self.roofline.gpu, typical(self.roofline.calibration.bandwidth)
        rate = self.roofline.gpus * gpu.bandwidth_bytes_per_second * share
        return dollars_per_million(self.machine_hour, rate / self.token_bytes(context))

    def output_per_million(self, batch: int, context: int) -> float:
        """Of generated tokens, `batch` sequences at a time."""
        seconds = self.roofline.decode_seconds(batch, context)
        return dollars_per_million(self.machine_hour, batch / seconds)

    def token_bytes(self, context: int) -> float:
        """Mean bytes of one of `context` tokens over all ranks: windows and states included."""
        return self.roofline.sequence_bytes(context) / context

    def break_even(self, context: int) -> dict[str, float]:
        """Seconds for which holding costs no more than computing again, by tier."""
        per_token = self.input_per_million(context) / MILLION
        return {
            tier: break_even_seconds(
                per_token, self.token_bytes(context), dollars_per_gb_hour=price
            )
            for tier, price in self.tier_prices().items()
        }
