"""A plan as tables for people. Every column names its unit; a blank cell is –."""

from __future__ import annotations

from typing import Any

from octavo.drawing.figures import Table
from octavo.plan.attention_traffic import (
    matrix_bytes,
    matrix_share,
    projections,
    standard_accesses,
    tiled_accesses,
)
from octavo.plan.formats import kv_format
from octavo.plan.geometry import Attention
from octavo.plan.plan import Plan, with_query_heads
from octavo.plan.record import as_record
from octavo.plan.sizes import binary, gib

BLANK = "–"
# What a tile of FlashAttention really has, and what popular figures take instead.
MULTIPROCESSOR_BYTES, CHIP_BYTES = 192 << 10, 20_000_000
BATCHES = (1, 4, 16, 64, 256)
TRAFFIC_TOKENS = 4096
ANSWER_TOKENS = 100


def tables(plan: Plan) -> list[Table]:
    """All of them, in the order of the report."""
    record = as_record(plan)
    found = [
        parts_table(plan),
        sequences_table(plan),
        savings_table(plan),
        memory_table(plan),
        fits_table(plan, record["fits"]),
        waste_table(record["fits"]),
        rates_table(plan, record["rates"]),
        decode_table(plan),
        cost_table(plan, record["cost"]),
        attention_table(plan),
    ]
    return [table for table in found if table is not None]


def whole(value: float | None) -> str:
    return BLANK if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    return BLANK if value is None else f"${value:,.3g}" if value < 1 else f"${value:,.2f}"


def duration(seconds: float) -> str:
    """'77 s', '12.1 min', '8.1 h'."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def parts_table(plan: Plan) -> Table:
    fmt, tp = plan.fmt, plan.tp
    rows = [
        (part.name, str(part.layers), whole(part.token_bytes(fmt, tp)), part.formula(fmt))
        for part in plan.geometry.parts
    ]
    total = plan.geometry.token_bytes(fmt, tp)
    rows.append(("each further token", "", whole(total), binary(total)))
    block = plan.geometry.early_token_bytes(fmt, tp) * plan.ask.block_size
    rows.append((f"a block of {plan.ask.block_size} tokens", "", whole(block), binary(block)))
    where = "" if tp == 1 else f", on each of {tp} ranks"
    title = f"What {plan.model.name} keeps, K and V in {fmt.name} ({plan.kv_rule}){where}"
    return Table(title, ("", "layers", "bytes a token", "formula"), tuple(rows))


def sequences_table(plan: Plan) -> Table:
    fmt, tp = plan.fmt, plan.tp
    rows = []
    for tokens in plan.longest_shown:
        exact = plan.geometry.sequence_bytes(tokens, fmt, tp)
        paged = plan.geometry.paged_bytes(tokens, fmt, block_tokens=plan.ask.block_size, tp=tp)
        full = plan.geometry.every_layer_full().sequence_bytes(tokens, fmt, tp)
        rows.append(
            (f"{tokens:,} tokens", whole(exact), binary(exact), binary(paged), binary(full))
        )
    columns = ("one sequence", "bytes", "exact", "in blocks", "without windows")
    return Table("What one sequence costs", columns, tuple(rows))


def savings_table(plan: Plan) -> Table:
    """What grouped queries and 8 bits buy."""
    fmt, tp = plan.fmt, plan.tp
    variants = [("as it is", plan.geometry, fmt)]
    if any(isinstance(part, Attention) for part in plan.geometry.parts):
        name = f"with K and V for each of {plan.model.query_heads} query heads"
        variants.append((name, with_query_heads(plan.model), fmt))
    others = [kv_format(name) for name in ("bfloat16", "fp8")]
    variants += [(f"in {other.name}", plan.geometry, other) for other in others if other != fmt]
    rows = []
    for name, geometry, kept in variants:
        a_token = geometry.token_bytes(kept, tp)
        at_context = geometry.sequence_bytes(plan.context, kept, tp)
        rows.append((name, whole(a_token), binary(at_context)))
    columns = ("", "bytes a token", f"at {plan.context:,} tokens")
    return Table("What head groups and formats buy", columns, tuple(rows))


def memory_table(plan: Plan) -> Table:
    rows = [
        (name, whole(n_bytes), BLANK if n_bytes is None else gib(n_bytes), why)
        for name, n_bytes, why in plan.bill.lines()
    ]
    title = f"Memory of one {plan.gpu.name}" + (f" of {plan.tp}" if plan.tp > 1 else "")
    return Table(title, ("", "bytes", "GiB", "from"), tuple(rows))


def fits_table(plan: Plan, fits: dict[str, Any]) -> Table | None:
    if plan.room is None:
        return None
    rows = [
        (
            one["name"],
            whole(one["requests"]),
            binary(one["bytes_per_request"]),
            f"{100 * one['used_share']:.1f} %",
            f"{one['lost_slots_per_request']:,.1f}",
            dollars(one["output_dollars_per_million"]),
        )
        for one in fits["allocators"]
    ]
    longest = fits["longest_context_tokens"]
    rows.append(("largest single context", f"{longest:,} tokens", "", "", "", ""))
    columns = ("", "requests", "each takes", "holds tokens", "slots lost", "$/M output")
    title = f"How many requests fit: {fits['lengths']}, mean {plan.mean_length:,}"
    return Table(title, columns, tuple(rows))


def waste_table(fits: dict[str, Any]) -> Table | None:
    """Shares of the room while the trace's requests come and go."""
    if not fits.get("steady_shares"):
        return None
    rows = [
        (name, *(f"{100 * share:.1f} %" for share in shares.values()))
        for name, shares in fits["steady_shares"].items()
    ]
    columns = ("", "tokens", "tokens to come", "never used", "outside")
    return Table("Where the room goes as requests come and go", columns, tuple(rows))


def rates_table(plan: Plan, rates: dict[str, Any]) -> Table | None:
    if plan.roofline is None:
        return None
    length = rates["context_tokens"]
    bound = rates["compute_bound_from_batch"]
    rows = [
        (
            f"prefill of {length:,} tokens, tokens/s",
            whole(rates["prefill_tokens_per_second"]),
            f"{whole(rates['prefill_tokens_per_second_low'])} to "
            f"{whole(rates['prefill_tokens_per_second_high'])}",
        ),
        (
            f"decode step of {rates['batch']}, ms",
            f"{rates['decode_ms']:.2f}",
            f"{rates['decode_ms_low']:.2f} to {rates['decode_ms_high']:.2f}",
        ),
        ("decode, tokens/s", whole(rates["decode_tokens_per_second"]), ""),
        ("compute-bound from batch", "beyond 1,024" if bound is None else f"{bound:,}", ""),
    ]
    for objective, key in (("itl", "step_budget_for_itl"), ("ttft", "step_budget_for_ttft")):
        name = f"{key}_tokens"
        if name in rates:
            goal = getattr(plan.ask, f"{objective}_ms")
            bound_word = "at most" if objective == "itl" else "at least"
            shown = "none meets it" if rates[name] is None else f"{bound_word} {rates[name]:,}"
            rows.append((f"step budget for {objective.upper()} {goal:g} ms, tokens", shown, ""))
    title = f"Time, after {rates['calibration']}"
    return Table(title, ("", "typical", "range"), tuple(rows))


def decode_table(plan: Plan) -> Table | None:
    """Milliseconds of a decode step by batch and context, as far as they fit."""
    if plan.roofline is None or plan.room is None:
        return None
    contexts = [n for n in (plan.mean_length, *plan.longest_shown) if n <= plan.context]
    contexts = sorted(set(contexts))
    rows = []
    for batch in BATCHES:
        cells = []
        for context in contexts:
            taken = batch * plan.geometry.sequence_bytes(context, plan.fmt, plan.tp)
            fits = taken <= plan.room.room_bytes and context <= 1 << 20
            cells.append(
                f"{1000 * plan.roofline.decode_seconds(batch, context):.2f}" if fits else BLANK
            )
        rows.append((f"batch {batch}", *cells))
    columns = ("ms a step", *(f"{n:,} tokens" for n in contexts))
    return Table("Decode by batch and context (– does not fit)", columns, tuple(rows))


def cost_table(plan: Plan, cost: dict[str, Any]) -> Table | None:
    if plan.money is None or plan.price is None:
        return None
    length, hold = plan.mean_length, plan.ask.hold_seconds
    rows = [
        ("GPU, $/hour", dollars(plan.price.typical), f"{plan.price}, {plan.price.sources}"),
        ("input, $/M tokens", dollars(cost["input_dollars_per_million"]), "computed"),
        (
            "cache write, $/M tokens",
            dollars(cost["cache_write_dollars_per_million"]),
            f"computed, kept {duration(hold)} in HBM",
        ),
        ("cache read, $/M tokens", dollars(cost["cache_read_dollars_per_million"]), "from HBM"),
        (
            "output, $/M tokens",
            dollars(cost["output_dollars_per_million"]),
            f"batch {plan.batch:,}, {length:,} tokens each",
        ),
    ]
    prices = plan.money.tier_prices()
    for tier, name in (("hbm", "HBM"), ("dram", "DRAM"), ("ssd", "SSD")):
        kept = duration(cost[f"break_even_{tier}_seconds"])
        rows.append((f"holding in {name} pays for", kept, f"${prices[tier]:.3g} a GB and hour"))
    fetch, again = cost["fetch_seconds"], cost["recompute_seconds"]
    rows.append(
        (
            f"fetch {length:,} tokens over {plan.ask.link_gbit:g} Gb/s",
            duration(fetch),
            f"computing again: {duration(again)}, {again / fetch:.1f} times that",
        )
    )
    return Table("Money", ("", "", "on what"), tuple(rows))


def attention_table(plan: Plan) -> Table:
    n, dim = TRAFFIC_TOKENS, plan.model.head_dim
    one, prompt = matrix_bytes(plan.context), plan.mean_length
    again, once = (projections(prompt, ANSWER_TOKENS, cached=kept) for kept in (False, True))
    everything = one * plan.model.query_heads * plan.model.layers
    rows = [
        (f"{prompt:,} tokens and {ANSWER_TOKENS} answered, no cache", f"{again:,} projections"),
        ("the same with a cache", f"{once:,} projections"),
        (f"score matrix of one head at {plan.context:,} tokens, 16 bits", binary(one)),
        ("all heads and layers", binary(everything)),
        (f"standard at {n:,}: matrix written and read", _millions(standard_accesses(n, dim))),
        ("the same with a causal mask", _millions(standard_accesses(n, dim, causal=True))),
    ]
    for name, elements in (
        ("tiles in one multiprocessor's 192 KiB", MULTIPROCESSOR_BYTES / 2),
        ("tiles if all 20 MB of the chip were one (popular)", CHIP_BYTES),
    ):
        share = matrix_share(dim, chip_elements=elements)
        accesses = _millions(tiled_accesses(n, dim, chip_elements=elements))
        rows.append((name, f"{accesses}; d²/M = {share:.2g}"))
    return Table(
        "Attention if its matrix existed, and in tiles", ("", "accesses to HBM"), tuple(rows)
    )


def _millions(elements: float) -> str:
    return f"{elements / 1e6:,.1f}M"
