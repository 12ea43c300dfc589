"""What the engine has counted since its start. A value; each field has one writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Tokens where the name says so. `sequences`: one per choice of a request.

    prefix_query_tokens, prefix_hit_tokens: the prompt of each request that asked the index,
    counted once, and what of it the cache supplied at its first admission.
    drafted_tokens, accepted_tokens: guesses that were run, and those of them that were right.
    """

    steps: int = 0
    sequences: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    stalls: int = 0
