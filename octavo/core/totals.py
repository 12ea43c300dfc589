"""What the engine has counted since its start. A value; each field has one writer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Totals:
    """Tokens where the name says so. `sequences`: one per choice of a request.

    prefix_query_tokens, prefix_hit_tokens: the prompt of each request that asked the index,
    counted once, and what of it the cache supplied at its first admission.
    prompt_tokens, prompt_read_tokens: the prompts that reached their first token, once for all
    choices of a request, and what of them came from the cache.
    drafted_tokens, accepted_tokens: guesses that were run, and those of them that were right;
    drafted_by_place, accepted_by_place: the same of the first guess of a row, the second, ...
    """

    steps: int = 0
    sequences: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    prompt_tokens: int = 0
    prompt_read_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    stalls: int = 0
    drafted_by_place: list[int] = field(default_factory=list)
    accepted_by_place: list[int] = field(default_factory=list)

    def take_drafts(self, n_drafts: int, n_accepted: int) -> None:
        """A row has run `n_drafts` guesses, of which the first `n_accepted` were right."""
        self.drafted_tokens += n_drafts
        self.accepted_tokens += n_accepted
        for counts, n in ((self.drafted_by_place, n_drafts), (self.accepted_by_place, n_accepted)):
            counts += [0] * (n_drafts - len(counts))
            for place in range(n):
                counts[place] += 1
