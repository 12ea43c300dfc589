"""What an hour of a GPU costs to rent: dated ranges with their sources. Prices age; these too.

A GPU without a row has no price here, and whoever needs one must ask the user. Kept apart from
prices of model APIs, which are per token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUPrice:
    """Dollars an hour for one GPU. `low` includes spot and peer-to-peer offers, `high` the large
    clouds' on-demand price."""

    low: float
    typical: float
    high: float
    date: str
    sources: str

    def __str__(self) -> str:
        return f"${self.low:.2f} to ${self.high:.2f}, {self.date}"


def _row(low: float, typical: float, high: float, date: str, sources: str) -> GPUPrice:
    return GPUPrice(low=low, typical=typical, high=high, date=date, sources=sources)


GPU_PRICES: Mapping[str, GPUPrice] = MappingProxyType(
    {
        "L4": _row(0.44, 0.78, 0.80, "2026-04", "llm-d-planner, deploybase (RunPod)"),
        "A10G": _row(1.30, 1.30, 1.30, "2026-04", "llm-d-planner"),
        "L40S": _row(0.50, 1.00, 2.75, "2026-08", "gpuhunt (Crusoe), Nebius, RunPod, Spheron"),
        "RTX4090": _row(0.34, 0.53, 0.60, "2026-08", "RunPod, Spheron"),
        "RTX5090": _row(0.69, 0.76, 1.22, "2026-08", "RunPod, Spheron"),
        "A100-40": _row(1.00, 1.45, 3.00, "2026-08", "gpuhunt (Crusoe), llm-d-planner"),
        "A100-PCIE": _row(1.20, 1.39, 1.65, "2026-08", "gpuhunt (Crusoe), RunPod"),
        "A100": _row(0.80, 1.95, 3.50, "2026-08", "gpuhunt (Crusoe), RunPod, llm-d-planner"),
        "H100-PCIE": _row(2.01, 2.01, 2.01, "2026-08", "Spheron"),
        "H100": _row(1.25, 2.95, 6.88, "2026-08", "gpuhunt (Crusoe), Nebius, RunPod, AWS"),
        "H200": _row(1.45, 3.59, 7.00, "2026-08", "gpuhunt (Crusoe), Nebius, RunPod, Spheron"),
        "B200": _row(5.50, 5.98, 10.57, "2026-08", "Nebius, RunPod, Spheron, llm-d-planner"),
        "GB200": _row(4.54, 4.54, 4.54, "2026-08", "Spheron: half of a superchip of two GPUs"),
        "MI300X": _row(0.95, 3.45, 3.75, "2026-08", "gpuhunt (Crusoe), llm-d-planner"),
    }
)

# Memory below HBM, $ for a GB (10^9 bytes) and hour: orders of magnitude, to be overridden.
DRAM_GB_HOUR = 0.004
SSD_GB_HOUR = 0.0001
