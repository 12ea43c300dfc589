"""How much of a chip's peak real engines reach: the efficiencies that times rest on, with their
spread and source. A chip without a row has no times here unless the user gives efficiencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MAX_GPUS = 8  # one machine: no network between machines is modelled
MAX_CONTEXT = 1 << 20
MAX_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Band:
    """A share of the peak: slowest, typical, fastest."""

    low: float
    typical: float
    high: float


def exactly(share: float) -> Band:
    """A share that the user gives, without a spread."""
    return Band(share, share, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Shares of peak arithmetic in prefill and decode, and of peak bandwidth in decode."""

    prefill_mfu: Band
    decode_mfu: Band
    bandwidth: Band
    source: str


# Bandwidth: 0.8 in AIConfigurator and InferSim, 0.9 in llm-analysis; BLIS's fit reads weights 1.4
# and K and V 1.9 times slower than the peak, 0.6 together.
_BANDWIDTH = Band(0.6, 0.8, 0.9)
CALIBRATIONS: Mapping[str, Calibration] = MappingProxyType(
    {
        # Low: what InferSim measured for Qwen3-8B on an H800, all overheads in it. High: BLIS's
        # typical value and its P99 error of TTFT, 29 %.
        "H100": Calibration(
            prefill_mfu=Band(0.25, 0.45, 0.58),
            decode_mfu=Band(0.25, 0.30, 0.45),
            bandwidth=_BANDWIDTH,
            source="BLIS (15 H100 runs fitted, 36 held out), InferSim (H800)",
        ),
        "H200": Calibration(
            prefill_mfu=Band(0.25, 0.40, 0.58),
            decode_mfu=Band(0.25, 0.30, 0.45),
            bandwidth=_BANDWIDTH,
            source="InferSim; decode as on an H100, which is the same chip",
        ),
        # BLIS's error end to end is 15.7 % and 13.3 %; widened to its P99 of TTFT.
        "A100": Calibration(
            prefill_mfu=Band(0.27, 0.38, 0.49),
            decode_mfu=Band(0.13, 0.18, 0.38),
            bandwidth=_BANDWIDTH,
            source="BLIS",
        ),
        "L40S": Calibration(
            prefill_mfu=Band(0.23, 0.32, 0.41),
            decode_mfu=Band(0.06, 0.08, 0.32),
            bandwidth=_BANDWIDTH,
            source="BLIS",
        ),
    }
)
