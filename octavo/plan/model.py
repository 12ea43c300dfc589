"""A model as the planner sees it: what it keeps, and what its weights and arithmetic cost.

Plain values. What is not known is None and stays blank in every figure that would need it.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.plan.geometry import Geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Weights in all, and those that one token passes through."""

    total: int
    active: int
    source: str
    experts: int = 0
    experts_of_token: int = 0

    def read_by(self, tokens: int) -> float:
        """Weights that a step of `tokens` reads from memory at least once.

        Each token takes experts_of_token of the experts at random: 1 - (1 - k/E)^tokens of them
        are read in the mean. The weights of one expert follow from total - active.
        """
        if not self.experts or self.experts <= self.experts_of_token:
            return self.total
        expert = (self.total - self.active) / (self.experts - self.experts_of_token)
        missed = (1 - self.experts_of_token / self.experts) ** max(0, tokens)
        return self.total - expert * self.experts * missed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """One model. `score_width`: Σ over layers of full attention of query heads · (key dim + value
    dim), the multiplications of one query with one stored token. `notes`: what was assumed."""

    name: str
    source: str
    geometry: Geometry
    layers: int
    hidden_size: int | None
    query_heads: int
    head_dim: int
    score_width: int
    max_position: int | None
    weight_dtype: str | None
    kv_dtype: str
    kv_rule: str  # where kv_dtype comes from
    parameters: Parameters | None = None
    stored_weight_bytes: int | None = None  # of the files at hand
    is_moe: bool = False
    notes: tuple[str, ...] = ()
