"""`LLM`: the engine for scripts, stepped on the caller's own thread. Adds no behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.compute.progress import TerminalProgress
from octavo.core.config import EngineConfig
from octavo.core.errors import EngineClosed, RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.build import Built, build
from octavo.engine.chat_options import ChatOptions
from octavo.engine.collect import Collector
from octavo.engine.engine import Engine
from octavo.engine.info import EngineInfo
from octavo.engine.prepare import Prepared
from octavo.engine.session import Session
from octavo.engine.stats import EngineStats
from octavo.engine.tool_chunks import ToolChunks
from octavo.engine.tools import Tool
from octavo.engine.types import Chunk, GenerateRequest, Output

Prompt = str | Mapping[str, Any]
Message = dict[str, Any]
PROMPT_FIELDS = ("prompt", "prompt_token_ids", "cache_salt", "priority")


class LLM:
    """A loaded model. Not thread-safe: one caller at a time.

    `model` is an alias, a local folder, a .gguf file or a hub id; `options` are the fields of
    EngineConfig (dtype=, max_model_len=, num_blocks=, ...).
    """

    def __init__(self, model: str = "smollm2", **options: Any) -> None:
        self._built: Built | None = build(
            EngineConfig.of(model, **options), progress=TerminalProgress()
        )
        self.info: EngineInfo = self._built.info

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt | Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Output]:
        """Complete prompts: strings, token ids, or dicts with `prompt` or `prompt_token_ids`.

        One prompt or a list of them; outputs come in their order. One bad prompt raises
        RequestError before anything runs. Without `params` the model's recommendation holds
        (`info.defaults`). What fails while running ends that choice only: its
        `finish_reason` is "error", `error` says why, and the other outputs are whole.
        """
        if not isinstance(prompts, str | Mapping | Sequence):
            raise RequestError("give a prompt or a list of prompts", param="prompt")
        many = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
        each_params = _spread(params, len(many))
        return self._run([
            _request(prompt, chosen) for prompt, chosen in zip(many, each_params, strict=True)
        ])  # fmt: skip

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Tool] = (),
        options: ChatOptions | None = None,
    ) -> list[Output]:
        """Answer one conversation, or several. Messages are dicts with `role` and `content`.

        `tools` are what the model may call: `tool_calls` of an answer. `options` say how the
        messages are rendered. Errors are told as by `generate`.
        """
        conversations: Any = messages if _are_several(messages) else [messages]
        return self._run([
            GenerateRequest(
                messages=conversation, tools=tools, params=params, chat=options or ChatOptions()
            )
            for conversation in conversations
        ])  # fmt: skip

    def stream(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Chunks as they come. Closing the iterator aborts the request."""
        prepared = self._engine.prepare(request)
        chunks: list[Chunk] = []
        tools = ToolChunks.of(request)
        session = self._engine.submit(prepared, chunks.append)
        try:
            while chunks or not session.ended:
                if not chunks:
                    self._engine.step()
                ready, chunks[:] = list(chunks), []
                for chunk in ready:
                    yield from tools.read(chunk)
        finally:
            self._abort([session])

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def clear_cache(self) -> None:
        """Forget every cached prefix."""
        self._engine.clear_cache()

    def close(self) -> None:
        """Give up model and cache. Idempotent; any other call afterwards raises EngineClosed."""
        self._built = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def _engine(self) -> Engine:
        if self._built is None:
            raise EngineClosed("this LLM has been closed; make a new one")
        return self._built.engine

    def _run(self, requests: Sequence[GenerateRequest]) -> list[Output]:
        prepared = [(self._engine.prepare(one), ToolChunks.of(one)) for one in requests]
        waiting = prepared[::-1]
        sessions: list[tuple[Session, Collector]] = []
        try:
            while waiting or self._engine.busy:
                while waiting and self._engine.places(waiting[-1][0].params) <= self._engine.room:
                    sessions.append(self._submit(*waiting.pop()))
                self._engine.step()
        finally:
            self._abort([session for session, _ in sessions])
        return [collector.output(session) for session, collector in sessions]

    def _submit(self, prepared: Prepared, tools: ToolChunks) -> tuple[Session, Collector]:
        collector = Collector(prepared.params.n, tools=tools)
        return self._engine.submit(prepared, collector.take), collector

    def _abort(self, sessions: Sequence[Session]) -> None:
        """End what an exception or an early close has left running."""
        left = [session for session in sessions if not session.ended]
        if not left or self._built is None:
            return
        for session in left:
            self._engine.cancel(session)
        while any(not session.ended for session in left):
            self._engine.step()


def _are_several(messages: Any) -> bool:
    """Whether these are conversations, not the messages of one."""
    return isinstance(messages, list | tuple) and any(
        isinstance(each, list | tuple) for each in messages[:1]
    )


def _spread(
    params: SamplingParams | Sequence[SamplingParams] | None, n: int
) -> Sequence[SamplingParams | None]:
    if params is None or isinstance(params, SamplingParams):
        return [params] * n
    if not isinstance(params, Sequence) or any(each is None for each in params):
        raise RequestError("params must be SamplingParams, or one for each prompt", param="params")
    if len(params) != n:
        raise RequestError(f"{n} prompts came with {len(params)} SamplingParams", param="params")
    return params


def _request(prompt: Any, params: SamplingParams | None) -> GenerateRequest:
    if isinstance(prompt, Mapping):
        return _from_fields(prompt, params)
    if isinstance(prompt, str):
        return GenerateRequest(prompt=prompt, params=params)
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise RequestError(
            "a prompt is a string, a list of token ids or a dict; the ids of a single prompt go "
            "into a list of their own",
            param="prompt",
        )
    return GenerateRequest(prompt_token_ids=list(prompt), params=params)


def _from_fields(prompt: Mapping[str, Any], params: SamplingParams | None) -> GenerateRequest:
    unknown = sorted(str(name)[:40] for name in prompt if name not in PROMPT_FIELDS)
    if unknown:
        raise RequestError(
            f"a prompt has no field {unknown[0]!a}; it takes {', '.join(PROMPT_FIELDS)}",
            param=unknown[0],
        )
    return GenerateRequest(
        prompt=prompt.get("prompt"),
        prompt_token_ids=prompt.get("prompt_token_ids"),
        params=params,
        priority=prompt.get("priority", 0),
        salt=prompt.get("cache_salt", ""),
    )
