"""The metrics that have vLLM's names, labels and meanings, so that its dashboards work here.

Where a sequence is counted, a choice or a beam is one, as vLLM counts its parallel samples.
"""

from __future__ import annotations

from octavo.server.telemetry.metric import Labelled, Reading, counter, gauge, histogram


def _sources(reading: Reading) -> Labelled:
    stats = reading.stats
    return {
        ("local_compute",): stats.prompt_tokens - stats.prompt_read_tokens,
        ("local_cache_hit",): stats.prompt_read_tokens,
    }


def _places(counts: tuple[int, ...]) -> Labelled:
    return {(str(place),): count for place, count in enumerate(counts)}


VLLM_STATE = (
    gauge(
        "vllm:cache_config_info",
        "What the KV cache was given at the start.",
        lambda r: {tuple(r.facts.values()): 1},
        "block_size",
        "cache_dtype",
        "enable_prefix_caching",
        "num_gpu_blocks",
    ),
    gauge(
        "vllm:num_requests_running",
        "Sequences that hold blocks: one per choice or beam.",
        lambda r: r.stats.running,
    ),
    gauge(
        "vllm:num_requests_waiting",
        "Sequences that wait for blocks or a seat.",
        lambda r: r.stats.waiting,
    ),
    gauge(
        "vllm:kv_cache_usage_perc",
        "Blocks that requests or pins hold, of all, from 0 to 1.",
        lambda r: r.stats.held_blocks / r.stats.total_blocks,
    ),
)
VLLM_COUNTERS = (
    counter(
        "vllm:prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache, once per request.",
        lambda r: r.stats.prefix_query_tokens,
    ),
    counter(
        "vllm:prefix_cache_hits",
        "Prompt tokens that the prefix cache had.",
        lambda r: r.stats.prefix_hit_tokens,
    ),
    counter(
        "vllm:prompt_tokens",
        "Tokens of prompts that reached their first token.",
        lambda r: r.stats.prompt_tokens,
    ),
    counter(
        "vllm:prompt_tokens_by_source",
        "The same by where their K and V came from.",
        _sources,
        "source",
    ),
    counter(
        "vllm:prompt_tokens_cached",
        "Those of them that were read from the cache.",
        lambda r: r.stats.prompt_read_tokens,
    ),
    counter(
        "vllm:generation_tokens",
        "Generated tokens.",
        lambda r: r.stats.generated_tokens,
    ),
    counter(
        "vllm:num_preemptions",
        "Sequences that gave their blocks up for others.",
        lambda r: r.stats.preemptions,
    ),
    counter(
        "vllm:request_success",
        "Choices that ended, by how.",
        lambda r: {(name,): count for name, count in r.traffic.finishes.items()},
        "finished_reason",
    ),
    counter(
        "vllm:spec_decode_num_draft_tokens",
        "Guessed tokens that were run.",
        lambda r: r.stats.drafted_tokens,
    ),
    counter(
        "vllm:spec_decode_num_drafts",
        "Rows with guesses.",
        lambda r: r.stats.drafted_by_place[0] if r.stats.drafted_by_place else 0,
    ),
    counter(
        "vllm:spec_decode_num_accepted_tokens",
        "Guessed tokens that were right.",
        lambda r: r.stats.accepted_tokens,
    ),
    counter(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "The same by their place among the guesses of a row.",
        lambda r: _places(r.stats.accepted_by_place),
        "position",
    ),
)


VLLM_HISTOGRAMS = (
    histogram(
        "vllm:time_to_first_token_seconds",
        "From a request's arrival to its first token.",
        lambda r: r.traffic.first_token.spread(),
    ),
    histogram(
        "vllm:inter_token_latency_seconds",
        "Between two steps that brought a choice tokens.",
        lambda r: r.traffic.inter_token.spread(),
    ),
    histogram(
        "vllm:request_time_per_output_token_seconds",
        "Decode time of a request over the tokens of its longest choice but the first.",
        lambda r: r.traffic.per_output_token.spread(),
    ),
    histogram(
        "vllm:e2e_request_latency_seconds",
        "From a request's arrival to its end.",
        lambda r: r.traffic.duration.spread(),
    ),
    histogram(
        "vllm:request_queue_time_seconds",
        "From the queue to the first blocks.",
        lambda r: r.traffic.queue.spread(),
    ),
    histogram(
        "vllm:request_inference_time_seconds",
        "From the first blocks to the last token.",
        lambda r: r.traffic.inference.spread(),
    ),
    histogram(
        "vllm:request_prefill_time_seconds",
        "From the first blocks to the first token.",
        lambda r: r.traffic.prefill.spread(),
    ),
    histogram(
        "vllm:request_decode_time_seconds",
        "From the first token to the last.",
        lambda r: r.traffic.decode.spread(),
    ),
    histogram(
        "vllm:request_prompt_tokens",
        "Tokens of a prompt.",
        lambda r: r.traffic.prompt.spread(),
    ),
    histogram(
        "vllm:request_generation_tokens",
        "Generated tokens of a request, all choices.",
        lambda r: r.traffic.output.spread(),
    ),
    histogram(
        "vllm:request_max_num_generation_tokens",
        "Generated tokens of a request's longest choice.",
        lambda r: r.traffic.longest_output.spread(),
    ),
    histogram(
        "vllm:request_params_max_tokens",
        "max_tokens as asked for.",
        lambda r: r.traffic.max_tokens.spread(),
    ),
    histogram(
        "vllm:request_params_n",
        "n as asked for.",
        lambda r: r.traffic.choices.spread(),
    ),
    histogram(
        "vllm:request_prefill_kv_computed_tokens",
        "Tokens of a prompt that were not read from the cache.",
        lambda r: r.traffic.prefilled.spread(),
    ),
    histogram(
        "vllm:iteration_tokens_total",
        "Tokens that a step computed.",
        lambda r: r.stats.step_tokens,
    ),
    histogram(
        "vllm:kv_block_lifetime_seconds",
        "From a block's publication to its eviction.",
        lambda r: r.stats.block_ages.lifetime,
    ),
    histogram(
        "vllm:kv_block_idle_before_evict_seconds",
        "From a block's last use to its eviction.",
        lambda r: r.stats.block_ages.idle,
    ),
    histogram(
        "vllm:kv_block_reuse_gap_seconds",
        "How long a block had lain unused when it was hit.",
        lambda r: r.stats.block_ages.reuse_gap,
    ),
)
VLLM_METRICS = (*VLLM_STATE, *VLLM_COUNTERS, *VLLM_HISTOGRAMS)
