"""Chunks of one request gathered into its output. Owns nothing else."""

from __future__ import annotations

from octavo.engine.session import Session
from octavo.engine.tool_chunks import ToolChunks
from octavo.engine.types import Chunk, Completion, Output, PromptLogprobs


class Collector:
    """Takes every chunk of one request; `output` is complete once all choices have ended."""

    def __init__(self, n: int, *, tools: ToolChunks) -> None:
        self._choices = [Completion(i, "", [], None) for i in range(n)]
        self._prompt_logprobs: PromptLogprobs | None = None
        self._tools = tools

    def take(self, chunk: Chunk) -> None:
        for each in self._tools.read(chunk):
            self._add(each)

    def _add(self, chunk: Chunk) -> None:
        choice = self._choices[chunk.choice]
        choice.text += chunk.text
        choice.tool_calls.extend(chunk.tool_calls)
        choice.token_ids.extend(chunk.token_ids)
        if chunk.logprobs is not None:
            choice.logprobs = (choice.logprobs or []) + list(chunk.logprobs)
        if chunk.prompt_logprobs is not None:
            self._prompt_logprobs = chunk.prompt_logprobs
        if chunk.finish_reason is not None:
            choice.finish_reason = chunk.finish_reason
            choice.stop_reason = chunk.stop_reason
            choice.receipt = chunk.receipt
            choice.error = chunk.error
            choice.cumulative_logprob = chunk.cumulative_logprob

    def output(self, session: Session) -> Output:
        prepared = session.prepared
        return Output(
            id=prepared.id or session.id,
            prompt=prepared.prompt,
            prompt_token_ids=prepared.tokens,
            outputs=self._choices,
            num_cached_tokens=session.receipt.read,
            receipt=session.receipt,
            prompt_logprobs=self._prompt_logprobs,
        )
