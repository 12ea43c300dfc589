"""Formulas from machines to money: dollars a token, holding against recomputing, fetching.

Pure arithmetic over numbers with units; knows no models and no catalogues.
"""

from __future__ import annotations

HOUR_SECONDS = 3600
MILLION = 1_000_000
GB = 10**9


def dollars_per_million(dollars_per_hour: float, tokens_per_second: float) -> float:
    """$ for a million tokens on machines that do `tokens_per_second` together."""
    return dollars_per_hour / HOUR_SECONDS / tokens_per_second * MILLION


def dollars_held(n_bytes: float, seconds: float, *, dollars_per_gb_hour: float) -> float:
    """$ for `n_bytes` kept for `seconds`."""
    return n_bytes / GB * dollars_per_gb_hour * seconds / HOUR_SECONDS


def break_even_seconds(
    dollars_to_recompute: float, n_bytes: float, *, dollars_per_gb_hour: float
) -> float:
    """How long `n_bytes` can be kept for the price of computing them again.

    The five-minute rule (Gray and Putzolu, 1987) with a GPU in the place of a disk arm.
    """
    return dollars_to_recompute / dollars_held(n_bytes, 1, dollars_per_gb_hour=dollars_per_gb_hour)


def transfer_seconds(n_bytes: float, *, bits_per_second: float) -> float:
    """Time of `n_bytes` over a link that is otherwise idle."""
    return n_bytes * 8 / bits_per_second


def break_even_bytes_per_second(token_bytes: float, *, prefill_tokens_per_second: float) -> float:
    """The bandwidth above which fetching K and V beats computing them."""
    return token_bytes * prefill_tokens_per_second


def flops_of_prefill(
    tokens: int, *, layers: int, hidden_size: int, attention: float = 4, weights: float = 22
) -> float:
    """Operations for a prompt by Mooncake's estimate (FAST'25, section 3): attention · t²·d and
    weights · t·d² in each layer, with d the hidden size."""
    return layers * (attention * tokens**2 * hidden_size + weights * tokens * hidden_size**2)
