"""One answer of a model as the logs tell it. Numbers, names and ids: never text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

CHARS_PER_TOKEN = 16  # no text has more; an output count far below it was never finished
MOST_PLACEHOLDER_TOKENS = 2


class Part(NamedTuple):
    """Tokens that are billed together, at one model's rates. Kinds exclude each other."""

    model: str
    input: int = 0
    write_5m: int = 0
    write_1h: int = 0
    read: int = 0
    output: int = 0
    searches: int = 0

    @property
    def prompt(self) -> int:
        """Tokens in, cached or not."""
        return self.input + self.write + self.read

    @property
    def write(self) -> int:
        return self.write_5m + self.write_1h

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


class Message(NamedTuple):
    """`time`: unix seconds. `agent`: "" on the main chain. `context`: tokens of the last prompt.

    Switches are 0 or 1: `sidechain`; `stopped`: a row said why the answer ended; `unsplit`: the log
    does not say for how long its writes were kept. `extra`: work in the same call that has rates of
    its own (an advisor) or comes on top (a compaction).
    """

    id: str
    time: float
    session: str
    project: str
    agent: str
    version: str
    sidechain: int
    stopped: int
    unsplit: int
    shown_chars: int
    context: int
    speed: str
    geo: str
    service_tier: str
    main: Part
    extra: tuple[Part, ...] = ()

    @property
    def model(self) -> str:
        return self.main.model

    @property
    def chain(self) -> tuple[str, str]:
        """Requests of one chain continue one another's prompt."""
        return (self.session, self.agent)

    @property
    def parts(self) -> Iterator[Part]:
        yield self.main
        yield from self.extra

    @property
    def held(self) -> int:
        """Tokens in the cache after it. A call of several prompts adds them up, but what is held is
        no longer than the last of them."""
        return min(self.main.read + self.main.write, self.context)

    @property
    def placeholder(self) -> bool:
        """The output is what was written down before the answer came: it cannot be repaired."""
        output = self.main.output
        return not self.stopped and (
            output <= MOST_PLACEHOLDER_TOKENS or self.shown_chars > output * CHARS_PER_TOKEN
        )

    def rank(self) -> tuple[Any, ...]:
        """The larger of two rows with one id is the one that counts: off the side chain, with the
        larger output, the later; beyond that any fixed order does."""
        return (1 - self.sidechain, self.main.output, self.time, self)

    def as_row(self) -> list[Any]:
        """For JSON and back: `from_row`."""
        return [*self[:-2], list(self.main), [list(one) for one in self.extra]]

    @classmethod
    def from_row(cls, row: list[Any]) -> Message:
        *fields, main, extra = row
        return cls._make([*fields, Part(*main), tuple(Part(*one) for one in extra)])


class Compaction(NamedTuple):
    """A conversation was summed up: its next prompt is a new one."""

    session: str
    agent: str
    time: float


def better(one: Message | None, other: Message) -> Message:
    """Which of two rows of one id counts, whatever order they come in."""
    return other if one is None or other.rank() > one.rank() else one
