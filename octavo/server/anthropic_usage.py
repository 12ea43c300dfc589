"""A request's receipt as Anthropic's usage object. Knows no HTTP and no requests.

input + read + creation is the prompt, whatever the receipt and the breakpoints say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.core.receipt import Receipt
from octavo.engine.breakpoints import Keep

HOUR_SECONDS = 3600


def usage_object(
    receipt: Receipt, keeps: Sequence[Keep], *, prompt_tokens: int, output_tokens: int
) -> dict[str, Any]:
    """Creation is what was written before the last breakpoint; the longest ttl names a token.

    A prompt is read first, then written, and what is not kept is its end: so what is written begins
    where reading ended. Writes that nobody asked for count as input, as does what was not kept.
    """
    read = min(receipt.read, prompt_tokens)
    written = min(receipt.written, prompt_tokens - read)

    def created(ends: list[int]) -> int:
        return min(written, max(0, max(ends, default=0) - read))

    creation = created([keep.end for keep in keeps])
    hour = created([keep.end for keep in keeps if keep.ttl_seconds >= HOUR_SECONDS])
    return {
        "input_tokens": prompt_tokens - read - creation,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": creation,
        "cache_creation": {
            "ephemeral_5m_input_tokens": creation - hour,
            "ephemeral_1h_input_tokens": hour,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
