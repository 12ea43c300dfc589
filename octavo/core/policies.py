"""The choices that make one scheduler behave like others, so that their loss shows in its receipts.

Each policy is a pure function; pool, cache and scheduler are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.core.request import Request

Cover = Callable[[Request, int], int]
Chunk = Callable[[int, int], int]
Admits = Callable[[Sequence[Request]], bool]


def exact(request: Request, end: int) -> int:
    """Paged: hold blocks for the tokens there are."""
    del request
    return end


def max_length(request: Request, end: int) -> int:
    """Reserve the longest the request may become. The last token needs no slot."""
    return max(end, request.max_total - 1)


def power_of_two(request: Request, end: int) -> int:
    """Reserve the output in doubling buffers, as systems did that grow without paging."""
    n_output = end - request.n_prompt
    if n_output <= 0:
        return end
    doubled = request.n_prompt + (1 << (n_output - 1).bit_length())
    return max(end, min(doubled, request.max_total - 1))


def split(n_tokens: int, left: int) -> int:
    """Chunked prefill: take what the budget leaves."""
    return max(0, min(n_tokens, left))


def whole(n_tokens: int, left: int) -> int:
    """A prompt is computed in one step or not at all."""
    return n_tokens if n_tokens <= left else 0


def always(running: Sequence[Request]) -> bool:
    """Continuous batching: requests enter at any step."""
    del running
    return True


def when_empty(running: Sequence[Request]) -> bool:
    """Static batching: a new batch enters when the last one has left."""
    return not running


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """One choice of each. `share_in_flight`: wait for blocks that another request is computing."""

    cover: Cover = exact
    chunk: Chunk = split
    admits: Admits = always
    share_in_flight: bool = True
