"""Each formula of a plan with its numbers, one to a line."""

from __future__ import annotations

from octavo.plan.plan import Plan
from octavo.plan.sizes import binary, gib


def explained(plan: Plan) -> list[str]:
    """From bytes to money, in the order in which they are computed."""
    return [*_kv(plan), *_memory(plan), *_fits(plan), *_times(plan), *_money(plan)]


def _kv(plan: Plan) -> list[str]:
    fmt, tp = plan.fmt, plan.tp
    lines = [f"K and V in {fmt.name}: {fmt.rule()} ({plan.kv_rule})", *plan.model.notes]
    for part in plan.geometry.parts:
        total = part.early_token_bytes(fmt, tp)
        lines.append(
            f"{part.name}: {part.formula(fmt)}" + (f" = {total:,} B a token" if total else "")
        )
        if tp > 1:
            lines[-1] += f" on each of {tp} ranks"
    context = plan.geometry.sequence_bytes(plan.context, fmt, tp)
    lines.append(f"one sequence of {plan.context:,} tokens: {context:,} B = {binary(context)}")
    return lines


def _memory(plan: Plan) -> list[str]:
    bill = plan.bill
    lines = [f"weights: {bill.weights_rule}"]
    if plan.ask.num_blocks is not None and plan.room is not None:
        found = f"{plan.ask.num_blocks:,} blocks as given = {gib(plan.room.room_bytes)}"
        return [*lines, f"room for K and V: {found}"]
    return [*lines, f"room for K and V: {bill.formula()}"]


def _fits(plan: Plan) -> list[str]:
    if plan.room is None:
        return [f"how many fit: {plan.no_room}"]
    room = plan.room.room_bytes
    return [
        f"{one.name}: {room:,} B / {one.request_bytes:,.1f} B = {one.requests:,} requests"
        for one in plan.allocators()
    ]


def _times(plan: Plan) -> list[str]:
    line = plan.roofline
    if line is None:
        return [f"times: {plan.no_times}"]
    length, batch, shares = plan.mean_length, plan.batch, line.calibration
    operations = 2 * line.parameters.active + line.model.score_width * length
    rate = line.gpus * line.gpu.bandwidth_bytes_per_second
    return [
        f"efficiencies: {shares.source}",
        f"prefill: {line.gpus} · {line.flops / 1e12:,.0f} TFLOP/s · "
        f"{shares.prefill_mfu.typical:g} / (2 · {line.parameters.active:,} + "
        f"{line.model.score_width:,} · {length:,} = {operations:,}) = "
        f"{line.prefill_tokens_per_second(length):,.0f} tokens/s",
        f"decode, memory: ({line.weight_bytes / 1e9:,.2f} GB of weights · "
        f"{line.parameters.read_by(batch) / line.parameters.total:.3g} + {batch:,} · "
        f"{line.sequence_bytes(length):,} B) / ({rate / 1e12:,.2f} TB/s · "
        f"{shares.bandwidth.typical:g}) = {1000 * line.memory_seconds(batch, length):.2f} ms",
        f"decode, arithmetic at {shares.decode_mfu.typical:g} of the peak: "
        f"{1000 * line.compute_seconds(batch, length):.2f} ms; the longer one counts",
    ]


def _money(plan: Plan) -> list[str]:
    money = plan.money
    if plan.price is None:
        return [f"money: no price is known for {plan.gpu.name}: give --gpu-price"]
    if money is None:
        return [f"money: {plan.no_times}"]
    length = plan.mean_length
    held = money.hbm_gb_hour * money.token_bytes(length) / 1e9
    return [
        f"machine: {plan.tp} · ${money.gpu_hour:g} = ${money.machine_hour:g} an hour "
        f"({plan.price.sources}, {plan.price.date})",
        f"input: ${money.machine_hour:g} / 3600 s / "
        f"{money.roofline.prefill_tokens_per_second(length):,.0f} tokens/s · 10⁶ = "
        f"${money.input_per_million(length):.3g} a million",
        f"holding in HBM: ${money.gpu_hour:g} / {plan.gpu.usable_bytes / 1e9:,.1f} GB · "
        f"{money.token_bytes(length):,.0f} B = ${held:.3g} a token and hour; recomputing it costs "
        f"${money.input_per_million(length) / 1e6:.3g}",
    ]
