"""A plan's plots: bytes by length, requests by allocator, decode by batch, the memory bill."""

from __future__ import annotations

from octavo.drawing.figures import Bars, Lines
from octavo.plan.calibration import MAX_BATCH
from octavo.plan.formats import kv_format
from octavo.plan.plan import Plan
from octavo.plan.sizes import GIB

SHORTEST = 1024


def plots(plan: Plan) -> dict[str, Lines | Bars]:
    """Those that the plan has figures for, by a short name."""
    found: dict[str, Lines | Bars] = {"bytes": bytes_curve(plan), "memory": memory_bars(plan)}
    if plan.room is not None:
        found["requests"] = Bars(
            title=f"Requests that fit ({plan.ask.lengths.source})",
            unit="requests",
            bars=[(one.name, float(one.requests)) for one in plan.allocators()],
        )
    if plan.roofline is not None:
        found["decode"] = decode_curve(plan)
    return found


def doublings(low: int, high: int) -> list[int]:
    """low, 2·low … and high itself."""
    found = []
    while low < high:
        found.append(low)
        low *= 2
    return [*found, high]


def bytes_curve(plan: Plan) -> Lines:
    """GiB of one sequence by its length, in the plan's format, in fp8 and without windows."""
    lengths = doublings(min(SHORTEST, plan.context), plan.context)
    full = plan.geometry.every_layer_full()
    series = {
        plan.fmt.name: [(n, plan.geometry.sequence_bytes(n, plan.fmt) / GIB) for n in lengths]
    }
    if plan.fmt.name != "fp8":
        fp8 = kv_format("fp8")
        series["fp8"] = [(n, plan.geometry.sequence_bytes(n, fp8) / GIB) for n in lengths]
    if full != plan.geometry:
        series["every layer full"] = [(n, full.sequence_bytes(n, plan.fmt) / GIB) for n in lengths]
    return Lines(
        title=f"{plan.model.name}: K and V of one sequence",
        x_label="tokens",
        y_label="GiB",
        series=series,
        log_x=True,
    )


def memory_bars(plan: Plan) -> Bars:
    """The bill of one GPU."""
    bill = plan.bill
    room = plan.room.room_bytes if plan.room else bill.kv_room_bytes
    terms = [
        ("weights", bill.weights_bytes),
        ("activations", bill.activation_bytes),
        ("non-torch", bill.non_torch_bytes),
        ("K and V", room),
    ]
    return Bars(
        title=f"Memory of one {plan.gpu.name}",
        unit="GiB",
        bars=[(name, n_bytes / GIB) for name, n_bytes in terms if n_bytes is not None],
    )


def decode_curve(plan: Plan) -> Lines:
    """Milliseconds of a decode step by batch, memory and arithmetic apart."""
    assert plan.roofline is not None
    length, line = plan.mean_length, plan.roofline
    batches = doublings(1, MAX_BATCH)
    return Lines(
        title=f"A decode step at {length:,} tokens each",
        x_label="batch",
        y_label="ms",
        series={
            "memory": [(n, 1000 * line.memory_seconds(n, length)) for n in batches],
            "arithmetic": [(n, 1000 * line.compute_seconds(n, length)) for n in batches],
        },
        log_x=True,
    )
