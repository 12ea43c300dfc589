"""What attention would move if its N × N matrix existed, and what it moves in tiles.

Counted in elements that pass between HBM and the chip, for one head. After FlashAttention
(Dao et al., 2022): O(N·d + N²) against O(N²·d²/M), M being the elements of on-chip memory.
"""

from __future__ import annotations


def projections(prompt: int, answer: int, *, cached: bool) -> int:
    """K and V computed for a prompt and `answer` tokens after it, in tokens.

    Without a cache each new token computes its whole past again; with one, each token but the last
    answered, which is never fed back, is computed once.
    """
    if cached:
        return prompt + answer - 1
    return answer * prompt + answer * (answer - 1) // 2


def matrix_bytes(tokens: int, *, element_bytes: int = 2) -> int:
    """Of one head's scores."""
    return tokens * tokens * element_bytes


def standard_accesses(tokens: int, head_dim: int, *, causal: bool = False) -> int:
    """Scores and weights each written and read, beside q, k, v and the output. A causal mask
    leaves half of the matrix."""
    trips = 4 * tokens * tokens
    return (trips // 2 if causal else trips) + 4 * tokens * head_dim


def tiled_accesses(tokens: int, head_dim: int, *, chip_elements: float) -> float:
    """The bound N²·d²/M, and q, k, v and the output once."""
    return tokens**2 * head_dim**2 / chip_elements + 4 * tokens * head_dim


def tiled_least_bytes(tokens: int, head_dim: int, *, element_bytes: int = 2) -> int:
    """If each of q, k, v and the output passed once, and the two float32 of each row twice."""
    return 4 * tokens * head_dim * element_bytes + tokens * 2 * 2 * 4


def matrix_share(head_dim: int, *, chip_elements: float) -> float:
    """d²/M: how much of the matrix's traffic tiles leave."""
    return head_dim**2 / chip_elements
