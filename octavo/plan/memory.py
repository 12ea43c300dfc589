"""The memory bill of one rank, line by line, down to what is left for K and V.

room = utilisation · memory - weights - activations - non-torch. CUDA graphs lie outside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.plan.formats import weight_bits
from octavo.plan.model import PlannedModel
from octavo.plan.sizes import GIB, gib

DEFAULT_UTILISATION = 0.9
# What vLLM's start measured on an H100 (llm-d-planner, 2026-04): activations hardly depend on the
# model's size, non-torch memory on whether ranks talk to each other.
DENSE_ACTIVATION_BYTES = round(4.8 * GIB)
MOE_ACTIVATION_BYTES = round(7.4 * GIB)
ALONE_BYTES, TALKING_BYTES = round(0.13 * GIB), round(0.55 * GIB)
MEASURED_SPREAD = {False: "4.8 to 5.6 GiB", True: "7.4 to 8 GiB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBill:
    """Bytes of one rank. `weights_bytes` is None where the model's weights are not known: then
    there is no room to speak of either."""

    memory_bytes: int
    utilisation: float
    weights_bytes: int | None
    activation_bytes: int
    non_torch_bytes: int
    weights_rule: str

    @property
    def kv_room_bytes(self) -> int | None:
        """What is left; never below 0."""
        if self.weights_bytes is None:
            return None
        taken = self.weights_bytes + self.activation_bytes + self.non_torch_bytes
        return max(0, round(self.memory_bytes * self.utilisation) - taken)

    def lines(self) -> list[tuple[str, int | None, str]]:
        """Each term with its bytes and where it comes from."""
        usable = round(self.memory_bytes * self.utilisation)
        return [
            ("memory", self.memory_bytes, "of one GPU"),
            ("usable", usable, f"utilisation {self.utilisation:g}"),
            ("weights", self.weights_bytes, self.weights_rule),
            ("activations", self.activation_bytes, "measured peak of a step"),
            ("non-torch", self.non_torch_bytes, "driver and communication"),
            ("K and V", self.kv_room_bytes, "what is left"),
        ]

    def formula(self) -> str:
        """The room with its numbers."""
        if self.weights_bytes is None or self.kv_room_bytes is None:
            return "the weights are not known: give --weight-size or --weights"
        return (
            f"{self.utilisation:g} · {gib(self.memory_bytes)} - {gib(self.weights_bytes)} - "
            f"{gib(self.activation_bytes)} - {gib(self.non_torch_bytes)} = "
            f"{gib(self.kv_room_bytes)}"
        )


def weights_of(model: PlannedModel, asked: str, *, tp: int) -> tuple[int | None, str]:
    """Bytes of one rank's weights, and the rule. `asked`: a format, or "auto" for the model's."""
    if asked == "auto" and model.stored_weight_bytes is not None:
        return -(-model.stored_weight_bytes // tp), f"the files' bytes / {tp}"
    name = model.weight_dtype if asked == "auto" else asked
    if name is None:
        return None, "the config mixes formats: give --weights or --weight-size"
    bits = weight_bits(name)
    if model.parameters is None:
        return None, "the number of weights is not known: give --weight-size"
    total = model.parameters.total
    n_bytes = round(total * bits / 8)
    return -(-n_bytes // tp), (
        f"{total:,} weights ({model.parameters.source}) · {bits:g} bits / {tp}"
    )


def bill(
    model: PlannedModel,
    *,
    memory_bytes: int,
    tp: int = 1,
    weights: str = "auto",
    utilisation: float = DEFAULT_UTILISATION,
    weight_bytes: int | None = None,
    activation_bytes: int | None = None,
    non_torch_bytes: int | None = None,
) -> MemoryBill:
    """The bill of one of `tp` ranks. Bytes that are given replace the defaults; `weight_bytes` is
    of the whole model."""
    rule = f"as given / {tp}"
    rank_bytes = None if weight_bytes is None else -(-weight_bytes // tp)
    if rank_bytes is None:
        rank_bytes, rule = weights_of(model, weights, tp=tp)
    if activation_bytes is None:
        activation_bytes = MOE_ACTIVATION_BYTES if model.is_moe else DENSE_ACTIVATION_BYTES
    if non_torch_bytes is None:
        non_torch_bytes = ALONE_BYTES if tp == 1 else TALKING_BYTES
    return MemoryBill(
        memory_bytes=memory_bytes,
        utilisation=utilisation,
        weights_bytes=rank_bytes,
        activation_bytes=activation_bytes,
        non_torch_bytes=non_torch_bytes,
        weights_rule=rule,
    )
