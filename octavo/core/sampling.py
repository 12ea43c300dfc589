"""What a request asks of sampling and of its end. A value; the scheduler never reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Parameters of one generation. `engine.validate` bounds every field before a request exists.

    temperature  0 is greedy; ties go to the lower token id.
    top_k        keep the k likeliest tokens; 0 keeps all.
    top_p        keep the smallest set whose probability reaches p, of what top_k left.
    min_p        keep tokens with at least min_p times the best one's probability.
    seed         makes a sampled result repeatable whatever runs beside it; None draws one.
    stop         strings that end the text; they are not part of it.
    stop_token_ids  token ids that end the generation; kept in `token_ids`, not in the text.
    ignore_eos   do not end at the model's end-of-sequence tokens.
    max_tokens   tokens to generate at most; None means as many as fit.
    logprobs     per generated token, this many likeliest tokens and the chosen one; None for none.
    n            number of choices, forked at the end of one prefill.
    beam_width   search with this many beams; the choices are then the n best answers.
    length_penalty  with beams, answers rank by log-probability / generated tokens ** this.
    early_stopping  with beams, when the search may end: see `beams.BeamRules`.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    ignore_eos: bool = False
    max_tokens: int | None = None
    logprobs: int | None = None
    n: int = 1
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities at one generated position, of the model's own untruncated distribution.

    chosen   (log-probability, rank) of the token taken; rank 1 is the likeliest.
    top      (token id, log-probability), likeliest first.
    """

    chosen: tuple[float, int]
    top: tuple[tuple[int, float], ...]
