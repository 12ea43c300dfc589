"""Token ids to text as they come: whole characters only, and never a part of a stop string.

Owns the two reasons for holding text back. Knows no requests and no finish reasons.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from octavo.engine.tokenizer import Tokenizer


class StopStrings:
    """Finds the first of several stop strings in text that comes in pieces.

    The first is the one that is complete first; of those that end at the same character, the
    longest. So the result does not depend on where the text was cut into pieces. One
    Knuth-Morris-Pratt automaton per stop string: constant amortised time per character. What may
    still become a stop string is held back.
    """

    __slots__ = ("_failures", "_held", "_keep", "_states", "_stops", "matched")

    def __init__(self, stops: Iterable[str], *, keep: bool = False) -> None:
        """Empty stop strings are not allowed: they would match before any text.

        `keep`: the stop string that is found stays in the text.
        """
        self._keep = keep
        self._stops = tuple(dict.fromkeys(stops))
        assert all(self._stops), "an empty stop string must be refused before it gets here"
        self._failures = [_failure_table(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take more text, return what surely is no part of a stop string; nothing after a match."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        for place, character in enumerate(text):
            stop = self._advance(character)
            if stop is not None:
                seen = self._held + text[: place + 1]
                self.matched, self._held = stop, ""
                return seen if self._keep else seen[: len(seen) - len(stop)]
        seen = self._held + text
        safe = len(seen) - max(self._states)
        self._held = seen[safe:]
        return seen[:safe]

    def pass_by(self, text: str) -> str:
        """Take text in which nothing is looked for, and begin afresh behind it."""
        held = self.finish()
        self._states = [0] * len(self._stops)
        return held + text

    def finish(self) -> str:
        """The text has ended: what was held back is text after all."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> str | None:
        """Feed one character to every automaton; the longest stop string it completes, if any."""
        found: str | None = None
        for which, stop in enumerate(self._stops):
            failure = self._failures[which]
            state = self._states[which]
            while state and stop[state] != character:
                state = failure[state - 1]
            state += stop[state] == character
            self._states[which] = state
            if state == len(stop) and (found is None or len(stop) > len(found)):
                found = stop
        return found


def _failure_table(pattern: str) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is also a prefix (KMP)."""
    table = [0] * len(pattern)
    length = 0
    for place in range(1, len(pattern)):
        while length and pattern[place] != pattern[length]:
            length = table[length - 1]
        length += pattern[place] == pattern[length]
        table[place] = length
    return table


class TextStream:
    """The text of one choice: its pieces joined equal `tokenizer.decode(ids)` up to the first stop.

    A token costs its own bytes only: nothing is decoded twice. `stopped` is the stop string that
    ended the text; it is part of it only with `keep_stop`.
    """

    __slots__ = ("_first", "_skipped", "_stops", "_tokenizer", "_utf8")

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: tuple[str, ...] = (),
        *,
        keep_stop: bool = False,
        skip_special: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopStrings(stops, keep=keep_stop)
        self._first = True

    @property
    def stopped(self) -> str | None:
        return self._stops.matched

    def push(self, token_id: int, *, searched: bool = True) -> str:
        """Take one token, return the text that is now certain: often some, sometimes none.

        searched: look for stop strings in its text. One never begins before a token that is not.
        """
        if token_id in self._skipped:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._first and data:
            data = self._tokenizer.token_bytes(token_id, first=True)
            self._first = False
        text = self._utf8.decode(data)
        return self._stops.push(text) if searched else self._stops.pass_by(text)

    def finish(self) -> str:
        """No more tokens: a broken-off character becomes U+FFFD, and what was held back is text."""
        text = self._stops.push(self._utf8.decode(b"", True))
        return text + self._stops.finish()
