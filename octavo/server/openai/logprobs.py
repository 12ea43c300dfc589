"""Log-probabilities in the two shapes of the OpenAI APIs. Knows no requests.

JSON has no -Infinity: OpenAI's floor of -9999 stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from octavo.engine.types import PromptLogprobs, TokenLogprob

TokenBytes = Callable[[int], bytes]
Position = dict[int, TokenLogprob]

FLOOR = -9999.0
UNSCORED = TokenLogprob(math.nan, 0)  # of an echoed prompt's first token, which nothing precedes


def begun_chars(raw: bytes) -> int:
    """Characters that begin in these bytes of UTF-8: a token may hold only a part of one."""
    return sum(byte & 0xC0 != 0x80 for byte in raw)


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
    An unscored token has null in both. A negative `offset_chars` stands for tokens before the text.
    """
    tokens: list[str] = []
    chosen: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for position in positions:
        texts = [
            (token_bytes(token_id).decode("utf-8", "replace"), max(FLOOR, found.logprob))
            for token_id, found in position.items()
        ]
        unscored = any(found is UNSCORED for found in position.values())
        tokens.append(texts[0][0])
        chosen.append(None if unscored else texts[0][1])
        # Different tokens may share a text (parts of a character); the better one is kept.
        tops.append(None if unscored else dict(reversed(texts)))
        offsets.append(max(0, offset_chars))
        offset_chars += begun_chars(token_bytes(next(iter(position))))
    return {
        "tokens": tokens,
        "token_logprobs": chosen,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def prompt_entries(
    positions: PromptLogprobs, count: int, token_bytes: TokenBytes
) -> list[dict[str, Any] | None]:
    """`prompt_logprobs` in vLLM's shape: per prompt token, token id -> what is known of it."""
    return [
        None
        if position is None
        else {
            str(token_id): {
                "logprob": max(FLOOR, found.logprob),
                "rank": found.rank,
                "decoded_token": token_bytes(token_id).decode("utf-8", "replace"),
            }
            for token_id, found in trimmed(position, count).items()
        }
        for position in positions
    ]


def trimmed(position: Position, count: int) -> Position:
    """The chosen token and the `count` likeliest."""
    chosen = next(iter(position))
    return {
        token_id: found
        for token_id, found in position.items()
        if token_id == chosen or found.rank <= count
    }
