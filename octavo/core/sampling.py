"""What a request asks of sampling and of its end. A value; the scheduler never reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Parameters of one generation. `engine.validate` bounds every field before a request exists.

    temperature  0 is greedy; ties go to the lower token id.
    top_k        keep the k likeliest tokens; 0 keeps all.
    top_p        keep the smallest set whose probability reaches p, of what top_k left.
    min_p        keep tokens with at least min_p times the best one's probability.
    presence_penalty   taken once from the logit of every token generated so far.
    frequency_penalty  taken once for each time the token was generated.
    repetition_penalty  divides a positive logit, and multiplies a negative one, of every token of
                 the prompt or generated so far; 1 changes nothing.
    logit_bias   token id -> number added to its logit.
    allowed_token_ids  the only tokens that may be taken; None allows all.
    bad_words    strings or token sequences that are never completed within the generated tokens:
                 a string counts as it is and with a space before it.
    seed         makes a sampled result repeatable whatever runs beside it; None draws one.
    stop         strings that end the text; they are not part of it.
    stop_token_ids  token ids that end the generation; kept in `token_ids`, not in the text.
    include_stop_str_in_output  let what ended the text, a stop string or token, be part of it.
    skip_special_tokens  leave control tokens out of the text.
    ignore_eos   do not end at the model's end-of-sequence tokens.
    min_tokens   no token that ends the generation before this many; no stop string among them.
    max_tokens   tokens to generate at most; None means as many as fit.
    logprobs     per generated token, this many likeliest tokens and the chosen one; None for none.
    prompt_logprobs  the same of each prompt token but the first.
    n            number of choices, forked at the end of one prefill.
    beam_width   search with this many beams; the choices are then the n best answers.
    length_penalty  with beams, answers rank by log-probability / generated tokens ** this.
    early_stopping  with beams, when the search may end: see `beams.BeamRules`.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | list[int] | None = None
    bad_words: Sequence[str | Sequence[int]] = ()
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @property
    def penalises(self) -> bool:
        """Whether logits depend on the tokens so far through a penalty."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    @property
    def restricts(self) -> bool:
        """Whether some tokens are favoured, hindered or kept out by name."""
        return bool(
            self.logit_bias
            or self.allowed_token_ids is not None
            or self.bad_words
            or self.min_tokens
        )


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities at one position, of the model's own untruncated distribution.

    chosen   (log-probability, rank) of the token taken; rank 1 is the likeliest.
    top      (token id, log-probability), likeliest first.
    """

    chosen: tuple[float, int]
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepScores:
    """What one step scored of one request, in order of position.

    prompt     of prompt tokens: the next ones that had not been scored yet.
    generated  of the tokens the step yielded.
    """

    prompt: tuple[TokenScores, ...] = ()
    generated: tuple[TokenScores, ...] = ()
