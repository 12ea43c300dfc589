"""Times of prefill and decode: the larger of arithmetic and memory traffic, each over the share of
the peak that real engines reach. One machine; no queue, no network, no overhead per step.

Scores are counted in the layers that read everything; those within windows, and linear layers' own
arithmetic, are small and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.core.errors import ConfigError
from octavo.plan.calibration import MAX_BATCH, MAX_CONTEXT, MAX_GPUS, Band, Calibration
from octavo.plan.formats import KVFormat
from octavo.plan.model import Parameters, PlannedModel
from octavo.pricing.gpus import GPU

MAX_BUDGET = 1 << 17
Pick = Callable[[Band], float]


def typical(band: Band) -> float:
    return band.typical


def slowest(band: Band) -> float:
    return band.low


def fastest(band: Band) -> float:
    return band.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """One model on `gpus` GPUs. `weight_bytes`: of the whole model. `flops`: of one GPU, dense."""

    model: PlannedModel
    parameters: Parameters
    fmt: KVFormat
    gpu: GPU
    gpus: int
    weight_bytes: int
    flops: float
    calibration: Calibration

    def prefill_tokens_per_second(self, context: int, pick: Pick = typical) -> float:
        """Of prompts of `context` tokens: peak · share over 2 · active weights + the operations on
        earlier tokens, of which there are context / 2 in the mean."""
        _check(self.gpus, context)
        operations = 2 * self.parameters.active + self.model.score_width * context
        return self.gpus * self.flops * pick(self.calibration.prefill_mfu) / operations

    def decode_bytes(self, batch: int, context: int) -> float:
        """Memory traffic of one step over all GPUs: weights once, and every sequence's cache."""
        share = self.parameters.read_by(batch) / self.parameters.total
        return self.weight_bytes * share + batch * self.sequence_bytes(context)

    def sequence_bytes(self, context: int) -> int:
        """Of one sequence over all ranks, copied heads and latents counted as often as they lie."""
        return self.gpus * self.model.geometry.sequence_bytes(context, self.fmt, self.gpus)

    def memory_seconds(self, batch: int, context: int, pick: Pick = typical) -> float:
        """Of the traffic of one decode step."""
        rate = self.gpus * self.gpu.bandwidth_bytes_per_second * pick(self.calibration.bandwidth)
        return self.decode_bytes(batch, context) / rate

    def compute_seconds(self, batch: int, context: int, pick: Pick = typical) -> float:
        """Of the arithmetic of one decode step."""
        operations = 2 * self.parameters.active + 2 * self.model.score_width * context
        return batch * operations / (self.gpus * self.flops * pick(self.calibration.decode_mfu))

    def decode_seconds(self, batch: int, context: int, pick: Pick = typical) -> float:
        """One step of `batch` sequences, each with `context` tokens kept."""
        _check(self.gpus, context)
        if batch > MAX_BATCH:
            raise ConfigError(
                f"batch {batch:,} is beyond the calibration, which ends at {MAX_BATCH:,}"
            )
        return max(
            self.memory_seconds(batch, context, pick), self.compute_seconds(batch, context, pick)
        )

    def compute_bound_batch(self, context: int) -> int | None:
        """The least batch whose arithmetic takes longer than its memory traffic; None: none up to
        the calibration's end."""
        for batch in range(1, MAX_BATCH + 1):
            if self.compute_seconds(batch, context) >= self.memory_seconds(batch, context):
                return batch
        return None

    def step_seconds(self, budget: int, *, decodes: int, context: int) -> float:
        """A step of `budget` tokens: one for each of `decodes` and a prefill chunk for the rest."""
        chunk = budget - decodes
        operations = 2 * self.parameters.active + self.model.score_width * context
        prefill = chunk * operations / self._prefill_rate()
        share = self.parameters.read_by(budget) / self.parameters.total
        traffic = self.weight_bytes * share + decodes * self.sequence_bytes(context)
        rate = self.gpus * self.gpu.bandwidth_bytes_per_second * self.calibration.bandwidth.typical
        return max(traffic / rate, prefill + self.compute_seconds(decodes, context))

    def largest_budget(self, itl_seconds: float, *, decodes: int, context: int) -> int | None:
        """The most tokens of a step that takes at most `itl_seconds`; None: even a step without a
        prefill takes longer."""

        def meets(budget: int) -> bool:
            seconds = self.step_seconds(budget, decodes=decodes, context=context)
            return seconds <= itl_seconds

        if not meets(decodes + 1):
            return None
        low, high = decodes + 1, MAX_BUDGET
        while low < high:  # a step's time never falls with its tokens
            middle = (low + high + 1) // 2
            low, high = (middle, high) if meets(middle) else (low, middle - 1)
        return low

    def first_token_seconds(self, budget: int, *, prompt: int, decodes: int, context: int) -> float:
        """TTFT of a prompt that starts at once, cut into chunks beside `decodes`."""
        steps = len(chunks(prompt, budget, decodes=decodes))
        return steps * self.step_seconds(budget, decodes=decodes, context=context)

    def smallest_budget(
        self, ttft_seconds: float, *, prompt: int, decodes: int, context: int
    ) -> int | None:
        """The least budget, in steps of 16 tokens, whose chunks bring the first token in time."""
        for budget in range(16 * (decodes // 16 + 1), MAX_BUDGET + 1, 16):
            seconds = self.first_token_seconds(
                budget, prompt=prompt, decodes=decodes, context=context
            )
            if seconds <= ttft_seconds:
                return budget
        return None

    def _prefill_rate(self) -> float:
        return self.gpus * self.flops * self.calibration.prefill_mfu.typical


def chunks(prompt: int, budget: int, *, decodes: int) -> list[int]:
    """How a prompt is cut when each step has `budget` tokens, `decodes` of them for others."""
    room = budget - decodes
    if room < 1:
        raise ConfigError(f"a budget of {budget:,} has no room beside {decodes:,} decodes")
    whole, rest = divmod(prompt, room)
    return [room] * whole + ([rest] if rest else [])


def _check(gpus: int, context: int) -> None:
    """Refuse what no calibration covers."""
    if gpus > MAX_GPUS:
        raise ConfigError(
            f"gpus is {gpus}; times are calibrated for one machine of up to {MAX_GPUS}",
            param="gpus",
        )
    if context > MAX_CONTEXT:
        raise ConfigError(
            f"context is {context:,}; times are calibrated up to {MAX_CONTEXT:,}", param="context"
        )
