"""Log-probabilities in the two shapes of the OpenAI APIs. Knows no requests.

JSON has no -Infinity: OpenAI's floor of -9999 stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from octavo.engine.types import TokenLogprob

TokenBytes = Callable[[int], bytes]
Position = dict[int, TokenLogprob]

FLOOR = -9999.0


def likeliest(position: Position, count: int) -> list[tuple[int, TokenLogprob]]:
    """The `count` best candidates in order of rank."""
    ranked = sorted(position.items(), key=lambda item: item[1].rank)
    return [item for item in ranked if item[1].rank <= count]


def chat_entry(token_id: int, found: TokenLogprob, token_bytes: TokenBytes) -> dict[str, Any]:
    """One candidate as the chat API writes it; `bytes` is exact where `token` may be replaced."""
    raw = token_bytes(token_id)
    text = raw.decode("utf-8", "replace")
    return {"token": text, "logprob": max(FLOOR, found.logprob), "bytes": list(raw)}


def chat_logprobs(
    positions: Iterable[Position], count: int, token_bytes: TokenBytes
) -> dict[str, Any]:
    """`choices[].logprobs` of the chat API: one entry per token, with the `count` likeliest."""
    content = []
    for position in positions:
        token_id, found = next(iter(position.items()))
        entry = chat_entry(token_id, found, token_bytes)
        best = likeliest(position, count)
        entry["top_logprobs"] = [chat_entry(one, score, token_bytes) for one, score in best]
        content.append(entry)
    return {"content": content, "refusal": None}


def completion_logprobs(
    positions: Iterable[Position], token_bytes: TokenBytes, *, offset_chars: int
) -> dict[str, Any]:
    """`choices[].logprobs` of the completions API; offsets are characters from the choice's start.

    `top_logprobs` holds the chosen token beside the likeliest, so up to one more than asked for.
    """
    tokens: list[str] = []
    chosen: list[float] = []
    tops: list[dict[str, float]] = []
    offsets: list[int] = []
    for position in positions:
        texts = [
            (token_bytes(token_id).decode("utf-8", "replace"), max(FLOOR, found.logprob))
            for token_id, found in position.items()
        ]
        tokens.append(texts[0][0])
        chosen.append(texts[0][1])
        # Different tokens may share a text (parts of a character); the better one is kept.
        tops.append(dict(reversed(texts)))
        offsets.append(offset_chars)
        offset_chars += len(texts[0][0])
    return {
        "tokens": tokens,
        "token_logprobs": chosen,
        "top_logprobs": tops,
        "text_offset": offsets,
    }
