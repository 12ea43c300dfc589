"""Drafts without a draft model: what followed the same words before, here or in a recent request.

Owns the texts it looks in and how much it dares; knows no scores. Drafts are guesses only: the step
that runs them decides, so they change how fast an answer comes and never what it is. Texts are kept
apart by the requests' cache roots: one tenant's words never guess another's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.core.batch import Row
from octavo.core.keys import Key
from octavo.core.request import Request

MIN_MATCH_TOKENS = 3  # fewer equal tokens than this say too little about the next
MAX_MATCH_TOKENS = 32  # more than this say no more
PLACES_PER_PAIR = 8  # occurrences remembered of one pair of tokens, the latest
RECENT_TOKENS = 1 << 16  # of finished requests, per root
RECENT_ROOTS = 64
FIRST_PAUSE_TOKENS = 16
LONGEST_PAUSE_TOKENS = 256


class Text:
    """A growing token sequence in which an ending can be looked up."""

    __slots__ = ("_places", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Append; costs a dictionary entry per token."""
        known = self.tokens
        for token in tokens:
            if known:
                places = self._places.setdefault((known[-1], token), [])
                if len(places) == PLACES_PER_PAIR:
                    del places[0]
                places.append(len(known) + 1)  # where what follows the pair begins
            known.append(token)

    def find(self, ending: Sequence[int]) -> tuple[int, int]:
        """(tokens in common, place of what follows) of the longest earlier match, the latest of
        equals; (0, 0) if there is none."""
        best = (0, 0)
        for place in reversed(self._places.get((ending[-2], ending[-1]), ())):
            if place < len(self.tokens):
                length = self._common(ending, place)
                if length > best[0]:
                    best = (length, place)
        return best

    def _common(self, ending: Sequence[int], place: int) -> int:
        """How many tokens before `place` equal those at the end of `ending`."""
        most = min(place, len(ending), MAX_MATCH_TOKENS)
        length = 2
        while length < most and self.tokens[place - 1 - length] == ending[-1 - length]:
            length += 1
        return length


@dataclass(slots=True)
class _Guesser:
    """One request's own text, and what its guesses have been worth.

    size          tokens to guess next time: doubled by a full success, cut by a failure
    pause         tokens to wait after a failed guess, doubled while they keep failing
    quiet_until   no guess before the request has this many tokens
    """

    size: int
    text: Text = field(default_factory=Text)
    pause: int = FIRST_PAUSE_TOKENS
    failures: int = 0
    quiet_until: int = 0


class Lookup:
    """At most `most_tokens` drafts a request, and none while more than `most_running` run: then
    the rows that a draft takes are better spent on other requests."""

    def __init__(self, *, most_tokens: int, most_running: int) -> None:
        self._most = most_tokens
        self._most_running = most_running
        self._guessers: dict[Request, _Guesser] = {}
        self._recent: OrderedDict[Key | None, Text] = OrderedDict()  # by use, the latest last

    def propose(self, requests: Sequence[Request], n_running: int) -> list[tuple[int, ...]]:
        return [self._guess(request, n_running) for request in requests]

    def _guess(self, request: Request, n_running: int) -> tuple[int, ...]:
        guesser = self._guessers.get(request)
        if guesser is None:
            guesser = self._guessers[request] = _Guesser(self._most)
        known = request.tokens
        text = guesser.text
        text.extend(known[len(text.tokens) :])
        room = min(guesser.size, request.max_total - len(known) - 1)
        quiet = n_running > self._most_running or len(known) < guesser.quiet_until
        if quiet or room < 1 or len(known) < MIN_MATCH_TOKENS:
            return ()
        ending = known[-MAX_MATCH_TOKENS:]
        length, place = text.find(ending)
        recent = self._recent.get(request.chain.root)
        if recent is not None:
            other = recent.find(ending)
            if other[0] > length:
                (length, place), text = other, recent
        if length < MIN_MATCH_TOKENS:
            return ()
        return tuple(text.tokens[place : place + room])

    def observe(self, rows: Sequence[Row], n_accepted: Sequence[int]) -> None:
        for row, n_right in zip(rows, n_accepted, strict=True):
            if row.drafts:
                self._learn(row.request, len(row.drafts), n_right)

    def _learn(self, request: Request, n_drafts: int, n_accepted: int) -> None:
        guesser = self._guessers.get(request)
        if guesser is None:
            return
        if n_accepted == n_drafts:
            guesser.size = min(self._most, 2 * guesser.size)
        else:
            guesser.size = max(1, n_accepted + 1)
        if n_accepted:
            guesser.failures, guesser.pause = 0, FIRST_PAUSE_TOKENS
            return
        guesser.failures += 1
        if guesser.failures >= 2:
            guesser.quiet_until = len(request.tokens) + guesser.pause
            guesser.pause = min(LONGEST_PAUSE_TOKENS, 2 * guesser.pause)

    def leave(self, request: Request) -> None:
        """The request has ended: its text becomes recent."""
        guesser = self._guessers.pop(request, None)
        root = request.chain.root
        if guesser is None or root is None:
            return
        recent = self._recent.pop(root, None)
        if recent is None or len(recent.tokens) > RECENT_TOKENS:
            recent = Text()
        recent.extend(request.tokens[-RECENT_TOKENS:])
        self._recent[root] = recent
        if len(self._recent) > RECENT_ROOTS:
            self._recent.popitem(last=False)

    def clear(self) -> None:
        self._recent.clear()
