"""What differs between OpenAI's two APIs in an answer: its objects. Knows no HTTP and no engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from octavo.engine.tools import ToolCall
from octavo.engine.types import Chunk, PromptLogprobs
from octavo.server.calling import with_calls
from octavo.server.openai.echo import Echo, echoed
from octavo.server.openai.jobs import Job
from octavo.server.openai.logprobs import (
    Position,
    TokenBytes,
    begun_chars,
    chat_logprobs,
    completion_logprobs,
    prompt_entries,
)
from octavo.server.openai.tools import call_object
from octavo.server.streams import Part, Streams


class Tally:
    """One choice as it grows."""

    __slots__ = (
        "cumulative_logprob",
        "finish_reason",
        "logprobs",
        "prompt_logprobs",
        "stop_reason",
        "texts",
        "token_ids",
        "tool_calls",
    )

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.tool_calls: list[ToolCall] = []
        self.logprobs: list[Position] = []
        self.prompt_logprobs: PromptLogprobs | None = None
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.cumulative_logprob: float | None = None

    def add(self, chunk: Chunk) -> None:
        self.texts.append(chunk.text)
        self.token_ids.extend(chunk.token_ids)
        self.tool_calls.extend(chunk.tool_calls)
        self.logprobs.extend(chunk.logprobs or ())
        self.prompt_logprobs = chunk.prompt_logprobs or self.prompt_logprobs
        self.finish_reason = chunk.finish_reason or self.finish_reason
        if chunk.stop_reason is not None:
            self.stop_reason = chunk.stop_reason
        if chunk.cumulative_logprob is not None:
            self.cumulative_logprob = chunk.cumulative_logprob


def beside(of: Tally | Chunk, job: Job) -> dict[str, Any]:
    """What a choice has beside OpenAI's fields.

    How it ended, and its tokens if asked for, as vLLM tells them; the score of a search's answer.
    """
    found: dict[str, Any] = {}
    if of.finish_reason is not None:
        found["stop_reason"] = of.stop_reason
    if of.cumulative_logprob is not None:
        found["cumulative_logprob"] = of.cumulative_logprob
    if job.return_token_ids:
        found["token_ids"] = list(of.token_ids)
    return found


class Shape(Protocol):
    """Chunks in, JSON objects out. `index` numbers the choices of all prompts.

    `prompts` are their token ids, known once `parts` has been called. `head` is what stands beside
    the choices in a whole answer and in the first event.
    """

    prefix: str
    whole_object: str
    event_object: str
    prompts: list[list[int]]

    def parts(self, streams: Streams) -> AsyncGenerator[Part, None]: ...
    def head(self) -> dict[str, Any]: ...
    def opening(self, index: int) -> dict[str, Any] | None: ...
    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]: ...
    def answer(self, tallies: Sequence[Tally]) -> dict[str, Any]: ...


class ChatShape:
    """chat.completion and chat.completion.chunk. Numbers the tool calls of each choice."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    event_object = "chat.completion.chunk"

    def __init__(self, job: Job, token_bytes: TokenBytes) -> None:
        self._job = job
        self._token_bytes = token_bytes
        self.prompts: list[list[int]] = []
        self._n_calls: dict[int, int] = {}

    def parts(self, streams: Streams) -> AsyncGenerator[Part, None]:
        self.prompts = streams.prompts
        return with_calls(streams.parts(), self._job.requests[0])

    def head(self) -> dict[str, Any]:
        return {"prompt_token_ids": self.prompts[0]} if self._job.return_token_ids else {}

    def opening(self, index: int) -> dict[str, Any]:
        """The first event of a choice tells the role."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]:
        delta: dict[str, Any] = {"content": chunk.text} if chunk.text else {}
        if chunk.tool_calls:
            first = self._n_calls.get(index, 0)
            self._n_calls[index] = first + len(chunk.tool_calls)
            delta["tool_calls"] = [
                {"index": place} | call_object(call)
                for place, call in enumerate(chunk.tool_calls, start=first)
            ]
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(chunk.logprobs),
            "finish_reason": chunk.finish_reason,
        }
        return choice | beside(chunk, self._job)

    def answer(self, tallies: Sequence[Tally]) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "choices": [self._choice(index, tally) for index, tally in enumerate(tallies)]
        }
        scores, count = tallies[0].prompt_logprobs, self._job.prompt_logprobs
        if count is not None and scores is not None:
            answer["prompt_logprobs"] = prompt_entries(scores, count, self._token_bytes)
        return answer

    def _choice(self, index: int, tally: Tally) -> dict[str, Any]:
        content = "".join(tally.texts)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if tally.tool_calls:
            message["content"] = content or None
            message["tool_calls"] = [call_object(call) for call in tally.tool_calls]
        choice = {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(tally.logprobs),
            "finish_reason": tally.finish_reason,
        }
        return choice | beside(tally, self._job)

    def _logprobs(self, positions: tuple[Position, ...] | list[Position] | None) -> Any:
        if self._job.top_logprobs is None or not positions:
            return None
        return chat_logprobs(positions, self._job.top_logprobs, self._token_bytes)


class CompletionShape:
    """text_completion, whole and in events. Remembers each choice's length for the offsets."""

    prefix = "cmpl"
    whole_object = "text_completion"
    event_object = "text_completion"

    def __init__(self, job: Job, token_bytes: TokenBytes) -> None:
        self._job = job
        self._token_bytes = token_bytes
        self._offsets: dict[int, int] = {}
        self._told: set[int] = set()  # choices whose first event has gone out
        self.prompts: list[list[int]] = []

    def head(self) -> dict[str, Any]:
        return {}

    def parts(self, streams: Streams) -> AsyncGenerator[Part, None]:
        """All chunks, after their prompts if these are to be echoed."""
        job = self._job
        self.prompts = streams.prompts
        if not job.echo:
            return streams.parts()
        echoes = [
            # Of a prompt that was cut, only the tokens tell what is left.
            Echo.of(
                None if request.truncate_prompt_tokens else request.prompt,
                token_ids,
                self._token_bytes,
            )
            for request, token_ids in zip(job.requests, streams.prompts, strict=True)
        ]
        for number, echo in enumerate(echoes):
            unspoken = echo.unspoken_chars(self._token_bytes)
            for index in range(number * job.n, (number + 1) * job.n):
                self._offsets[index] = -unspoken
        return echoed(streams.parts(), echoes, top_logprobs=job.top_logprobs)

    def opening(self, index: int) -> None:
        del index

    def delta(self, index: int, chunk: Chunk) -> dict[str, Any]:
        choice = self._entry(index, chunk.text, chunk.logprobs, chunk.finish_reason)
        if index not in self._told:
            self._told.add(index)
            choice |= self._prompt(index)
        return choice | beside(chunk, self._job)

    def answer(self, tallies: Sequence[Tally]) -> dict[str, Any]:
        choices = []
        for index, tally in enumerate(tallies):
            text = "".join(tally.texts)
            choice = self._entry(index, text, tally.logprobs, tally.finish_reason)
            scores = tallies[index - index % self._job.n].prompt_logprobs
            count = self._job.prompt_logprobs
            if count is not None and scores is not None:
                choice["prompt_logprobs"] = prompt_entries(scores, count, self._token_bytes)
            choices.append(choice | self._prompt(index) | beside(tally, self._job))
        return {"choices": choices}

    def _prompt(self, index: int) -> dict[str, Any]:
        """The tokens of a choice's prompt, if they are asked for."""
        if not self._job.return_token_ids:
            return {}
        return {"prompt_token_ids": self.prompts[index // self._job.n]}

    def _entry(
        self,
        index: int,
        text: str,
        positions: tuple[Position, ...] | list[Position] | None,
        finish_reason: str | None,
    ) -> dict[str, Any]:
        logprobs = None
        if self._job.top_logprobs is not None and positions:
            start = self._offsets.get(index, 0)
            logprobs = completion_logprobs(positions, self._token_bytes, offset_chars=start)
            told = (begun_chars(self._token_bytes(next(iter(each)))) for each in positions)
            self._offsets[index] = start + sum(told)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
