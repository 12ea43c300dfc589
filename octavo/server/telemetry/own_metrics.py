"""The metrics that only Octavo has, and those that every exporter has about its process."""

from __future__ import annotations

from octavo.server.telemetry.metric import Labelled, Reading, counter, gauge


def _states(reading: Reading) -> Labelled:
    stats = reading.stats
    return {
        ("free",): stats.free_blocks,
        ("cached",): stats.cached_blocks,
        ("held",): stats.held_blocks,
    }


OWN = (
    gauge(
        "octavo:kv_blocks",
        "Blocks by state; together they are all.",
        _states,
        "state",
    ),
    gauge(
        "octavo:kv_bytes_per_token",
        "Bytes of K and V of one token, all layers.",
        lambda r: r.bytes_per_token,
    ),
    gauge(
        "octavo:kv_capacity_tokens",
        "Tokens that all blocks hold while no window has left any.",
        lambda r: r.capacity_tokens,
    ),
    gauge(
        "octavo:kv_blocks_shared",
        "Held blocks with more than one holder.",
        lambda r: r.stats.shared_blocks,
    ),
    gauge(
        "octavo:kv_blocks_pinned",
        "Blocks that pins hold.",
        lambda r: r.stats.pinned_blocks,
    ),
    counter("octavo:steps", "Steps.", lambda r: r.stats.steps),
    counter(
        "octavo:computed_tokens", "Tokens run by the model.", lambda r: r.stats.computed_tokens
    ),
    counter("octavo:evictions", "Cached blocks taken for others.", lambda r: r.stats.evictions),
    counter(
        "octavo:copied_blocks", "Partial blocks copied at a fork.", lambda r: r.stats.copied_blocks
    ),
    counter("octavo:stalls", "Rows left out for want of a block.", lambda r: r.stats.stalls),
    counter(
        "octavo:in_flight_shared_tokens",
        "Prompt tokens read from a request that was just computing them.",
        lambda r: r.traffic.shared_in_flight_tokens,
    ),
    counter(
        "octavo:cache_written_tokens",
        "Prompt tokens computed and kept: by a pin, or for as long as there is room.",
        lambda r: {(kind,): count for kind, count in r.traffic.written.items()},
        "kind",
    ),
    counter(
        "octavo:unkept_tokens",
        "Prompt tokens computed and not kept.",
        lambda r: r.traffic.unkept_tokens,
    ),
    counter(
        "octavo:recomputed_tokens",
        "Tokens computed again after a preemption.",
        lambda r: r.traffic.recomputed_tokens,
    ),
    counter(
        "octavo:lost_slots",
        "Slots of last blocks that were never needed.",
        lambda r: r.traffic.lost_slots,
    ),
    counter(
        "octavo:block_seconds",
        "Blocks held over time; a shared block counts for each holder.",
        lambda r: r.traffic.block_seconds,
    ),
    counter(
        "octavo:http_requests",
        "HTTP answers; 499 is a client that left.",
        lambda r: {
            (each.route, each.method, str(each.status)): count
            for each, count in r.traffic.answers.items()
        },
        "route",
        "method",
        "status",
    ),
    counter(
        "octavo:ledger_lost_rows",
        "Rows that the ledger could not keep.",
        lambda r: r.ledger_lost_rows,
    ),
)
PROCESS = (
    counter(
        "process_cpu_seconds",
        "CPU time of the process, user and system.",
        lambda r: r.process.cpu_seconds,
        plain=True,
    ),
    gauge(
        "process_resident_memory_bytes",
        "Memory of the process that is resident.",
        lambda r: r.process.resident_bytes,
        plain=True,
    ),
    gauge(
        "process_open_fds",
        "Open file descriptors.",
        lambda r: r.process.open_files,
        plain=True,
    ),
    gauge(
        "process_start_time_seconds",
        "When the process began, in unix time.",
        lambda r: r.process.started_at,
        plain=True,
    ),
)
OWN_METRICS = (*OWN, *PROCESS)
