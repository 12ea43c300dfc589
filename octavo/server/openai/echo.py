"""The prompt repeated before its completion, with its log-probabilities if they were asked for.

Owns what is put before a choice's first chunk. Knows no wire format.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from octavo.engine.types import PromptLogprobs
from octavo.server.openai.logprobs import UNSCORED, Position, TokenBytes, begun_chars, trimmed
from octavo.server.streams import Part


@dataclass(frozen=True, slots=True)
class Echo:
    """One prompt: its text as it was sent, or as its tokens spell it, and its tokens."""

    text: str
    token_ids: Sequence[int]

    @classmethod
    def of(cls, prompt: str | None, token_ids: Sequence[int], token_bytes: TokenBytes) -> Echo:
        spelt = b"".join(map(token_bytes, token_ids)).decode("utf-8", "replace")
        return cls(spelt if prompt is None else prompt, token_ids)

    def unspoken_chars(self, token_bytes: TokenBytes) -> int:
        """Characters of the tokens that the text lacks: a BOS token, or a space put in front."""
        return sum(begun_chars(token_bytes(token)) for token in self.token_ids) - len(self.text)

    def positions(self, scores: PromptLogprobs, count: int) -> tuple[Position, ...]:
        """One position per prompt token, with the `count` likeliest tokens."""
        first: Position = {self.token_ids[0]: UNSCORED}
        return (first, *(trimmed(each, count) for each in scores if each is not None))


async def echoed(
    parts: AsyncGenerator[Part, None], echoes: Sequence[Echo], *, top_logprobs: int | None
) -> AsyncGenerator[Part, None]:
    """`parts`, the first one of each choice beginning with its prompt.

    Log-probabilities of a prompt come with its first choice; the others are held back until then.
    """
    positions: dict[int, tuple[Position, ...]] = {}
    held: dict[int, list[Part]] = {}
    begun: set[tuple[int, int]] = set()
    async with contextlib.aclosing(parts):
        async for part in parts:
            ready = [part]
            if top_logprobs is not None and part.prompt not in positions:
                scores = part.chunk.prompt_logprobs
                if scores is None:
                    held.setdefault(part.prompt, []).append(part)
                    continue
                positions[part.prompt] = echoes[part.prompt].positions(scores, top_logprobs)
                ready += held.pop(part.prompt, [])
            for each in ready:
                choice = (each.prompt, each.chunk.choice)
                if choice not in begun:
                    begun.add(choice)
                    each = _begun(each, echoes[each.prompt], positions.get(each.prompt))
                yield each


def _begun(part: Part, echo: Echo, positions: tuple[Position, ...] | None) -> Part:
    chunk = replace(part.chunk, text=echo.text + part.chunk.text)
    if positions is not None:
        chunk = replace(chunk, logprobs=(*positions, *(chunk.logprobs or ())))
    return Part(part.prompt, chunk)
