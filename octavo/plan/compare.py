"""Several models side by side on the same hardware and under the same demands."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.drawing.figures import Bars, Lines, Table
from octavo.plan.plan import Plan
from octavo.plan.plots import doublings
from octavo.plan.record import as_record
from octavo.plan.sizes import GIB, binary
from octavo.plan.tables import BLANK, dollars, whole

LONGEST, SHORTEST = 131_072, 1024


def comparison(plans: Sequence[Plan]) -> Table:
    """One row for each model."""
    rows = []
    for plan in plans:
        record = as_record(plan)
        fits, rates, cost = record["fits"], record["rates"], record["cost"]
        kv = record["kv"]
        at_most = min(LONGEST, plan.context)
        rows.append(
            (
                plan.model.name,
                whole(kv["bytes_per_token"]),
                binary(kv["fixed_bytes_per_sequence"]),
                f"{binary(plan.geometry.sequence_bytes(at_most, plan.fmt, plan.tp))} "
                f"at {at_most:,}",
                whole(fits["reserved_max"]),
                whole(fits["paged"]),
                f"{rates['decode_ms']:.2f}" if "decode_ms" in rates else BLANK,
                dollars(cost.get("input_dollars_per_million")),
                dollars(cost.get("output_dollars_per_million")),
            )
        )
    columns = (
        *("", "B/token", "fixed", "one sequence", "reserved", "paged", "ms/step"),
        *("$/M in", "$/M out"),
    )
    first = plans[0]
    title = f"On {first.tp} × {first.gpu.name}, requests of {first.ask.lengths.source}"
    return Table(title, columns, tuple(rows))


def comparison_plots(plans: Sequence[Plan]) -> dict[str, Lines | Bars]:
    """GiB of one sequence by length, and requests that fit."""
    found: dict[str, Lines | Bars] = {
        "bytes": Lines(
            title="K and V of one sequence",
            x_label="tokens",
            y_label="GiB",
            series={
                plan.model.name: [
                    (n, plan.geometry.sequence_bytes(n, plan.fmt) / GIB)
                    for n in doublings(SHORTEST, LONGEST)
                ]
                for plan in plans
            },
            log_x=True,
        )
    }
    fits = [(plan.model.name, paged.requests) for plan in plans if (paged := plan.paged())]
    if fits:
        bars = [(name, float(n)) for name, n in fits]
        found["requests"] = Bars(title="Requests that fit, paged", unit="requests", bars=bars)
    return found
