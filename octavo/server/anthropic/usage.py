"""A request's receipt as Anthropic's usage object. Knows no HTTP and no requests.

input + read + creation is the prompt.
"""

from __future__ import annotations

from typing import Any

from octavo.core.receipt import Receipt


def usage_object(receipt: Receipt, *, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Creation is what was written because the caller asked to keep it: whole blocks before a
    breakpoint. Writes that nobody asked for count as input, as does what was not kept.
    """
    creation = receipt.written_5m + receipt.written_1h
    return {
        "input_tokens": prompt_tokens - receipt.read - creation,
        "cache_read_input_tokens": receipt.read,
        "cache_creation_input_tokens": creation,
        "cache_creation": {
            "ephemeral_5m_input_tokens": receipt.written_5m,
            "ephemeral_1h_input_tokens": receipt.written_1h,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
