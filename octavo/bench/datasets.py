"""What a load asks for: prompts of token ids with the length of their answers, the same by seed.

The shapes are those that vLLM and SGLang use: `random` and `prefix_repetition` of the former,
`generated-shared-prefix` of the latter. Knows no engine and no clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

from octavo.core.errors import ConfigError

MOST_PROMPTS = 1 << 20
MOST_LENGTH = 1 << 20
MOST_TOKENS = 1 << 26  # of all prompts of one load together


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a load: what to send, and how many tokens to have generated."""

    token_ids: tuple[int, ...]
    output_tokens: int


class Dataset(Protocol):
    """A shape of load with its sizes; its fields are flags of the command line."""

    name: ClassVar[str]

    def prompts(self, source: random.Random, vocabulary: Sequence[int]) -> list[Prompt]:
        """The load. `vocabulary`: the ids to draw from."""


def _near(source: random.Random, length: int, ratio: float) -> int:
    """A whole number from (1 - ratio) to (1 + ratio) times `length`, at least 1."""
    return source.randint(max(1, math.floor(length * (1 - ratio))), math.ceil(length * (1 + ratio)))


def _ratio() -> Any:
    return field(default=0.0, metadata={"help": "lengths vary by this share, from 0 to below 1"})


def _size(default: int, text: str, *, most: int = MOST_LENGTH) -> Any:
    return field(default=default, metadata={"help": text, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPrompts:
    """Unrelated prompts. Lengths are uniform within ± `range_ratio` of what is asked for."""

    name: ClassVar[str] = "random"

    num_prompts: int = _size(32, "requests", most=MOST_PROMPTS)
    input_len: int = _size(1024, "prompt tokens of each request")
    output_len: int = _size(128, "tokens generated for each request")
    range_ratio: float = _ratio()

    def prompts(self, source: random.Random, vocabulary: Sequence[int]) -> list[Prompt]:
        ratio = self.range_ratio
        lengths = [
            (_near(source, self.input_len, ratio), _near(source, self.output_len, ratio))
            for _ in range(self.num_prompts)
        ]
        return [Prompt(_draw(source, vocabulary, n), n_output) for n, n_output in lengths]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRepetition:
    """A few prefixes, each followed by many suffixes, in random order."""

    name: ClassVar[str] = "prefix_repetition"

    num_prompts: int = _size(32, "requests", most=MOST_PROMPTS)
    num_prefixes: int = _size(10, "different prefixes", most=MOST_PROMPTS)
    prefix_len: int = _size(256, "tokens of a prefix")
    suffix_len: int = _size(256, "tokens after it")
    output_len: int = _size(128, "tokens generated for each request")

    def prompts(self, source: random.Random, vocabulary: Sequence[int]) -> list[Prompt]:
        prefixes = [_draw(source, vocabulary, self.prefix_len) for _ in range(self.num_prefixes)]
        found = [
            Prompt(
                prefixes[i % self.num_prefixes] + _draw(source, vocabulary, self.suffix_len),
                self.output_len,
            )
            for i in range(self.num_prompts)
        ]
        source.shuffle(found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSharedPrefix:
    """Groups of requests with a system prompt in common and a question each, in random order.

    Lengths of questions and outputs are uniform within ± `range_ratio` of what is asked for.
    """

    name: ClassVar[str] = "generated-shared-prefix"

    num_groups: int = _size(4, "different system prompts", most=MOST_PROMPTS)
    prompts_per_group: int = _size(8, "requests of each group", most=MOST_PROMPTS)
    system_prompt_len: int = _size(512, "tokens of a system prompt")
    question_len: int = _size(64, "tokens after it")
    output_len: int = _size(64, "tokens generated for each request")
    range_ratio: float = _ratio()

    def prompts(self, source: random.Random, vocabulary: Sequence[int]) -> list[Prompt]:
        found = []
        for _ in range(self.num_groups):
            system = _draw(source, vocabulary, self.system_prompt_len)
            for _ in range(self.prompts_per_group):
                n_question = _near(source, self.question_len, self.range_ratio)
                question = _draw(source, vocabulary, n_question)
                n_output = _near(source, self.output_len, self.range_ratio)
                found.append(Prompt(system + question, n_output))
        source.shuffle(found)
        return found


DATASETS: dict[str, type[RandomPrompts | PrefixRepetition | GeneratedSharedPrefix]] = {
    kind.name: kind for kind in (RandomPrompts, PrefixRepetition, GeneratedSharedPrefix)
}


def dataset(name: str, given: Mapping[str, Any]) -> Dataset:
    """The data set `name` with its sizes. Raises ConfigError naming the flag that is wrong."""
    if name not in DATASETS:
        raise ConfigError(
            f"dataset_name must be one of {', '.join(DATASETS)}", param="dataset_name"
        )
    kind = DATASETS[name]
    known = {one.name: one for one in fields(kind)}
    for option, value in given.items():
        if option not in known:
            raise ConfigError(f"the data set {name} has no {option}; leave it out", param=option)
        most = known[option].metadata.get("most")
        if most is not None and not 1 <= value <= most:
            raise ConfigError(f"{option} must be from 1 to {most}, not {value}", param=option)
    if not 0 <= given.get("range_ratio", 0) < 1:
        raise ConfigError("range_ratio must be from 0 to below 1", param="range_ratio")
    made = kind(**given)
    _check_total(made)
    return made


def _check_total(chosen: RandomPrompts | PrefixRepetition | GeneratedSharedPrefix) -> None:
    """Refuse a load that would fill the memory before it says anything."""
    if isinstance(chosen, RandomPrompts):
        n_tokens, name = 2 * chosen.num_prompts * chosen.input_len, "num_prompts"
    elif isinstance(chosen, PrefixRepetition):
        length = chosen.prefix_len + chosen.suffix_len
        n_tokens, name = max(chosen.num_prompts, chosen.num_prefixes) * length, "num_prompts"
    else:
        length = chosen.system_prompt_len + 2 * chosen.question_len
        n_tokens, name = chosen.num_groups * chosen.prompts_per_group * length, "num_groups"
    if n_tokens > MOST_TOKENS:
        raise ConfigError(
            f"this load may have {n_tokens} prompt tokens, more than {MOST_TOKENS}; lower {name} "
            "or the lengths",
            param=name,
        )


def _draw(source: random.Random, vocabulary: Sequence[int], n_tokens: int) -> tuple[int, ...]:
    return tuple(source.choices(vocabulary, k=n_tokens))
