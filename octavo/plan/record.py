"""A plan as plain values under stable keys, units in their names. What is unknown is None."""

from __future__ import annotations

from typing import Any

from octavo.plan.attention_traffic import matrix_bytes
from octavo.plan.calibration import MAX_BATCH
from octavo.plan.formats import kv_format
from octavo.plan.plan import Plan, with_query_heads
from octavo.plan.roofline import fastest, slowest
from octavo.pricing.cost import transfer_seconds

GBIT = 1e9


def as_record(plan: Plan) -> dict[str, Any]:
    """Everything; the sections are those of the report."""
    return {
        "model": model_record(plan),
        "kv": kv_record(plan),
        "memory": memory_record(plan),
        "fits": fits_record(plan),
        "rates": rates_record(plan),
        "cost": cost_record(plan),
    }


def model_record(plan: Plan) -> dict[str, Any]:
    model, parameters = plan.model, plan.model.parameters
    return {
        "name": model.name,
        "source": model.source,
        "layers": model.layers,
        "query_heads": model.query_heads,
        "max_position": model.max_position,
        "parameters": parameters.total if parameters else None,
        "active_parameters": parameters.active if parameters else None,
        "notes": [*model.notes, *plan.remarks()],
    }


def kv_record(plan: Plan) -> dict[str, Any]:
    """Bytes of one rank, save those that say all ranks."""
    geometry, fmt, tp = plan.geometry, plan.fmt, plan.tp
    token_bytes = geometry.token_bytes(fmt, tp)
    early = geometry.early_token_bytes(fmt, tp)
    return {
        "dtype": fmt.name,
        "dtype_rule": plan.kv_rule,
        "tensor_parallel": tp,
        "block_tokens": plan.ask.block_size,
        "bytes_per_token": token_bytes,
        "bytes_per_token_all_ranks": token_bytes * tp,
        "bytes_per_early_token": early,
        "bytes_per_block": early * plan.ask.block_size,
        "fixed_bytes_per_sequence": geometry.fixed_bytes(fmt, tp),
        "bytes_per_sequence": {
            str(n): geometry.sequence_bytes(n, fmt, tp) for n in plan.longest_shown
        },
        "bytes_per_token_with_query_heads": with_query_heads(plan.model).token_bytes(fmt, tp),
        "bytes_per_token_fp8": geometry.token_bytes(kv_format("fp8"), tp),
        "attention_matrix_bytes": matrix_bytes(plan.context),
        "parts": [
            {
                "kind": part.name,
                "layers": part.layers,
                "bytes_per_token": part.token_bytes(fmt, tp),
                "bytes_at_context": part.sequence_bytes(plan.context, fmt, tp),
                "formula": part.formula(fmt),
            }
            for part in geometry.parts
        ],
    }


def memory_record(plan: Plan) -> dict[str, Any]:
    bill = plan.bill
    return {
        "gpu": plan.gpu.name,
        "gpus": plan.tp,
        "gpu_bytes": bill.memory_bytes,
        "utilisation": bill.utilisation,
        "weights_bytes": bill.weights_bytes,
        "activation_bytes": bill.activation_bytes,
        "non_torch_bytes": bill.non_torch_bytes,
        "kv_room_bytes": plan.room.room_bytes if plan.room else bill.kv_room_bytes,
        "missing": plan.no_room or None,
    }


def fits_record(plan: Plan) -> dict[str, Any]:
    found = plan.allocators()
    paged = plan.paged()
    if plan.room is None or paged is None:
        return dict.fromkeys(
            ("reserved_max", "reserved_pow2", "paged", "exact", "blocks", "longest_context_tokens")
        ) | {"allocators": [], "lengths": plan.ask.lengths.source}
    return {
        "reserved_max": found[0].requests,
        "reserved_pow2": found[1].requests,
        "paged": paged.requests,
        "exact": found[-1].requests,
        "blocks": plan.room.blocks(plan.ask.block_size),
        "longest_context_tokens": plan.room.longest_context(),
        "lengths": plan.ask.lengths.source,
        "mean_length_tokens": plan.ask.lengths.mean,
        "reserved_tokens": plan.context,
        "steady_shares": {
            name: {
                "tokens": one.tokens,
                "reserved": one.reserved,
                "internal": one.internal,
                "external": one.external,
            }
            for name, one in plan.waste().items()
        },
        "allocators": [
            {
                "name": one.name,
                "requests": one.requests,
                "bytes_per_request": one.request_bytes,
                "used_share": one.used,
                "lost_slots_per_request": one.lost_slots,
                "output_dollars_per_million": price_of(plan, one.requests),
            }
            for one in found
        ],
    }


def price_of(plan: Plan, requests: int) -> float | None:
    """$ for a million generated tokens with so many sequences at once; None where it is unknown or
    beyond the calibration."""
    if plan.money is None or not 1 <= requests <= MAX_BATCH:
        return None
    return plan.money.output_per_million(requests, plan.mean_length)


def rates_record(plan: Plan) -> dict[str, Any]:
    roofline = plan.roofline
    if roofline is None:
        return {"missing": plan.no_times}
    length, batch = plan.mean_length, plan.batch
    record: dict[str, Any] = {
        "calibration": roofline.calibration.source,
        "context_tokens": length,
        "batch": batch,
        "prefill_tokens_per_second": roofline.prefill_tokens_per_second(length),
        "prefill_tokens_per_second_low": roofline.prefill_tokens_per_second(length, slowest),
        "prefill_tokens_per_second_high": roofline.prefill_tokens_per_second(length, fastest),
        "decode_ms": 1000 * roofline.decode_seconds(batch, length),
        "decode_ms_low": 1000 * roofline.decode_seconds(batch, length, fastest),
        "decode_ms_high": 1000 * roofline.decode_seconds(batch, length, slowest),
        "decode_tokens_per_second": batch / roofline.decode_seconds(batch, length),
        "compute_bound_from_batch": roofline.compute_bound_batch(length),
    }
    if plan.ask.itl_ms is not None:
        record["step_budget_for_itl_tokens"] = roofline.largest_budget(
            plan.ask.itl_ms / 1000, decodes=batch, context=length
        )
    if plan.ask.ttft_ms is not None:
        record["step_budget_for_ttft_tokens"] = roofline.smallest_budget(
            plan.ask.ttft_ms / 1000, prompt=plan.prompt, decodes=batch, context=length
        )
    return record


def cost_record(plan: Plan) -> dict[str, Any]:
    price, money = plan.price, plan.money
    record: dict[str, Any] = {
        "gpu_dollars_per_hour": price.typical if price else None,
        "gpu_dollars_per_hour_low": price.low if price else None,
        "gpu_dollars_per_hour_high": price.high if price else None,
        "price_date": price.date if price else None,
        "price_sources": price.sources if price else None,
    }
    if money is None:
        return record
    length, hold = plan.mean_length, plan.ask.hold_seconds
    break_even = money.break_even(length)
    return record | {
        "input_dollars_per_million": money.input_per_million(length),
        "cache_write_dollars_per_million": money.cache_write_per_million(length, hold_seconds=hold),
        "cache_read_dollars_per_million": money.cache_read_per_million(length),
        "output_dollars_per_million": money.output_per_million(plan.batch, length),
        "hold_seconds": hold,
        "break_even_hbm_seconds": break_even["hbm"],
        "break_even_dram_seconds": break_even["dram"],
        "break_even_ssd_seconds": break_even["ssd"],
        "link_gbit_per_second": plan.ask.link_gbit,
        "fetch_seconds": fetch_seconds(plan),
        "recompute_seconds": length / money.roofline.prefill_tokens_per_second(length),
    }


def fetch_seconds(plan: Plan) -> float:
    """Of a mean request's K and V over the link."""
    n_bytes = plan.tp * plan.geometry.sequence_bytes(plan.mean_length, plan.fmt, plan.tp)
    return transfer_seconds(n_bytes, bits_per_second=plan.ask.link_gbit * GBIT)
