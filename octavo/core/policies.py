"""The choices that make one scheduler behave like others, so that their loss shows in its receipts.

Values and pure functions; pool, cache and scheduler are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.core.request import Request


@dataclass(frozen=True, slots=True)
class Allocator:
    """How far ahead of its tokens a request holds blocks.

    `cover(request, end)` is the number of tokens to hold blocks for when it has `end` of them.
    `reserves`: it may be more than `end`, and none of it is given back before the request ends.
    """

    cover: Callable[[Request, int], int]
    reserves: bool


def _exact(request: Request, end: int) -> int:
    del request
    return end


def _max_length(request: Request, end: int) -> int:
    """The longest the request may become. The last token needs no slot."""
    return max(end, request.max_total - 1)


def _power_of_two(request: Request, end: int) -> int:
    """The prompt, and a buffer for the output that doubles when it is full."""
    n_output = end - request.n_prompt
    if n_output <= 0:
        return end
    doubled = request.n_prompt + (1 << (n_output - 1).bit_length())
    return max(end, min(doubled, request.max_total - 1))


PAGED = Allocator(_exact, reserves=False)
MAX_LENGTH = Allocator(_max_length, reserves=True)
POWER_OF_TWO = Allocator(_power_of_two, reserves=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """One choice of each.

    splits          chunked prefill: a prompt takes what the budget leaves; else all or nothing
    continuous      requests enter at any step; else a batch enters when the last one has left
    share_in_flight wait for blocks that another request is computing
    copy_on_write   a fork shares full blocks; else it copies all, which needs chains without keys
    """

    allocator: Allocator = PAGED
    splits: bool = True
    continuous: bool = True
    share_in_flight: bool = True
    copy_on_write: bool = True

    def chunk(self, n_tokens: int, left: int) -> int:
        """How many of `n_tokens` to compute when the budget has `left`."""
        if n_tokens <= left:
            return n_tokens
        return max(0, left) if self.splits else 0
