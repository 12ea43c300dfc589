"""One accepted request: its choices as core requests, and their tokens as text.

Owns text streams, stop strings and usage. Used by the engine thread only; knows no queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from octavo.core.beams import BeamGroup, BeamRules, Hypothesis
from octavo.core.keys import Key, TokenChain
from octavo.core.receipt import Receipt
from octavo.core.request import UNBOUNDED, Finish, Request
from octavo.core.sampling import StepScores, TokenScores
from octavo.engine.detokenize import TextStream
from octavo.engine.prepare import Prepared
from octavo.engine.tokenizer import Tokenizer
from octavo.engine.types import Chunk, PromptLogprobs, TokenLogprob, Usage

Emit = Callable[[Chunk], None]


@dataclass(slots=True)
class _Choice:
    request: Request
    text: TextStream | None
    ended: bool = False
    n_tokens: int = 0  # generated and handed out
    stopped_by: int | None = None  # the stop token, if one that the caller named ended it

    @property
    def stopped_text(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.text is not None and self.text.stopped is not None


class Session:
    """`emit` receives every chunk in order, on the engine thread."""

    def __init__(
        self,
        session_id: str,
        prepared: Prepared,
        *,
        tokenizer: Tokenizer | None,
        root: Key | None,
        block_tokens: int,
        emit: Emit,
    ) -> None:
        self.id = session_id
        self.prepared = prepared
        self._emit = emit
        self._choices: list[_Choice] = []
        self._prompt_scores: list[TokenScores] = []  # until the leader's first token
        wants_prompt_scores = prepared.params.prompt_logprobs is not None
        for i in range(prepared.params.n):
            chain = TokenChain(root, block_tokens)
            if i:  # the same prompt: its keys are hashed once
                chain.keys.extend(self._choices[0].request.chain.keys)
            request = Request(
                f"{session_id}-{i}",
                prepared.tokens,
                limits=prepared.limits,
                chain=chain,
                sampling=prepared.params,
                priority=prepared.priority,
                owner=session_id,
                choice=i,
                source=self._choices[0].request if i else None,
                scored=UNBOUNDED if i or not wants_prompt_scores else 0,
                # A guess would have to be scored as if the guesses before it had been said.
                speculates=not (prepared.params.penalises or prepared.params.restricts),
            )
            if not i:
                for keep in prepared.keeps:
                    request.receipt.take_pin(keep.end, keep.ttl_seconds)
            self._choices.append(_Choice(request, _text_stream(prepared, tokenizer)))

    @property
    def requests(self) -> list[Request]:
        """The core's requests, the leader first."""
        return [choice.request for choice in self._choices]

    def search(self, rules: BeamRules) -> None:
        """Make the choices the answers of one beam search. Before anything has run.

        The leader is the search; the other requests never run: each stands for one more answer.
        """
        leader, *others = self.requests
        group = BeamGroup(leader, rules)
        for other in others:
            other.beams = group
            other.source = None
            other.receipt = leader.receipt

    def take_answer(self, request: Request, found: Hypothesis) -> None:
        """Emit an answer of the search, whole."""
        choice = self._choices[request.choice]
        n_taken, text = _read(choice, found.tokens)
        assert n_taken == len(found.tokens)
        choice.n_tokens = n_taken
        last = Chunk(request.choice, text, found.tokens, cumulative_logprob=found.logprob)
        self.end(request, found.finish, last=last)

    @property
    def ended(self) -> bool:
        return all(choice.ended for choice in self._choices)

    @property
    def receipt(self) -> Receipt:
        """The leader's: it prefilled the prompt."""
        return self._choices[0].request.receipt

    def take(
        self,
        request: Request,
        tokens: Sequence[int],
        *,
        scores: StepScores | None,
        finish: Finish | None,
    ) -> bool:
        """Turn new tokens into a chunk. True: a stop string was met, and the request must end."""
        if scores is not None:
            self._prompt_scores += scores.prompt
        if not tokens:
            return False
        choice = self._choices[request.choice]
        n_taken, text = _read(choice, tokens)
        choice.n_tokens += n_taken
        chunk = Chunk(
            choice=request.choice,
            text=text,
            token_ids=tuple(tokens[:n_taken]),
            logprobs=self._logprobs(scores, tokens[:n_taken]),
            prompt_logprobs=self._prompt_logprobs(request, n_new=len(tokens)),
        )
        if finish is None:
            self._emit(chunk)
            return choice.stopped_text
        self.end(request, finish, last=chunk)
        return False

    def end(
        self,
        request: Request,
        finish: Finish,
        *,
        last: Chunk | None = None,
        error: str | None = None,
    ) -> None:
        """Emit a choice's final chunk, once its core request has been closed."""
        choice = self._choices[request.choice]
        if choice.ended:
            return
        last = Chunk(request.choice, "", ()) if last is None else last
        text = last.text
        stop_reason: str | int | None = choice.stopped_by
        if choice.text is not None and finish is not Finish.ERROR:
            text += choice.text.finish()
            if choice.text.stopped is not None:
                stop_reason, finish = choice.text.stopped, Finish.STOP
        choice.ended = True  # not before: should the text fail, the end is still to be told
        self._emit(
            replace(
                last,
                text=text,
                finish_reason=finish.value,
                stop_reason=stop_reason,
                usage=self._usage() if self.ended else None,
                receipt=request.receipt,
                error=error,
            )
        )

    def fail(self, reason: str) -> None:
        """The engine died: end every choice that has not ended."""
        for request in self.requests:
            self.end(request, Finish.ERROR, error=reason)

    def _logprobs(
        self, scores: StepScores | None, tokens: Sequence[int]
    ) -> tuple[dict[int, TokenLogprob], ...] | None:
        if scores is None or self.prepared.params.logprobs is None:
            return None
        return tuple(map(_candidates, scores.generated, tokens))

    def _prompt_logprobs(self, request: Request, *, n_new: int) -> PromptLogprobs | None:
        """Told once: with the first token of the choice that ran the prompt."""
        params, first = self.prepared.params, len(request.tokens) - request.n_prompt == n_new
        if params.prompt_logprobs is None or request.choice or not first:
            return None
        scores, self._prompt_scores = self._prompt_scores, []
        followers = self.prepared.tokens[1:]
        return (
            None,
            *(_candidates(*each) for each in zip(scores, followers, strict=True)),
        )

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self.prepared.tokens),
            completion_tokens=sum(choice.n_tokens for choice in self._choices),
            cached_tokens=self.receipt.read,
            cache_write_tokens=self.receipt.written,
        )


def _text_stream(prepared: Prepared, tokenizer: Tokenizer | None) -> TextStream | None:
    if tokenizer is None:
        return None
    params = prepared.params
    return TextStream(
        tokenizer,
        prepared.stops,
        keep_stop=params.include_stop_str_in_output,
        skip_special=params.skip_special_tokens,
    )


def _read(choice: _Choice, tokens: Sequence[int]) -> tuple[int, str]:
    """Push tokens into the choice's text until something stops it: tokens taken, and new text.

    `tokens` are the last ones of its request.
    """
    request, params = choice.request, choice.request.sampling
    n_before = len(request.tokens) - request.n_prompt - len(tokens)
    pieces: list[str] = []
    for i, token in enumerate(tokens, start=1):
        ends = token in request.limits.stop_ids
        if ends and token in params.stop_token_ids:
            choice.stopped_by = token
        if choice.text is not None and (params.include_stop_str_in_output or not ends):
            searched = not ends and n_before + i > params.min_tokens
            pieces.append(choice.text.push(token, searched=searched))
        if ends or choice.stopped_text:
            return i, "".join(pieces)
    return len(tokens), "".join(pieces)


def _candidates(score: TokenScores, token: int) -> dict[int, TokenLogprob]:
    """The chosen token first, then the likeliest ones."""
    logprob, rank = score.chosen
    found = {token: TokenLogprob(logprob, rank)}
    for place, (candidate, value) in enumerate(score.top, start=1):
        found.setdefault(candidate, TokenLogprob(value, place))
    return found
