"""From an OpenAI body to neutral requests. Knows no HTTP and no engine; runs on any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from octavo.core.errors import OctavoError, RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.chat_options import ChatOptions
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.types import GenerateRequest
from octavo.server.body import parse_object
from octavo.server.contract import ServedModel
from octavo.server.intake import check_model, renamed, validated
from octavo.server.limits import ServerLimits
from octavo.server.openai.wire import (
    COMPLETION_TOKENS,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Generation,
)


class ChatRendering(Protocol):
    """The fields of a wire model that say how its messages are rendered."""

    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template_kwargs: dict[str, Any] | None


# What the engine calls a field, and what each API calls it.
CHAT_NAMES = {
    "prompt": "messages",
    "prompt_token_ids": "messages",
    "logprobs": "top_logprobs",
    "salt": "cache_salt",
}
COMPLETION_NAMES = {"prompt_token_ids": "prompt", "messages": "prompt", "salt": "cache_salt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One HTTP request's work: one neutral request per prompt, and how to answer.

    `names` maps the engine's field names to this API's, for errors found later.
    `top_logprobs`, `prompt_logprobs`: likeliest tokens to list beside each of the answer's and of
    the prompt's, or None when no log-probabilities were asked for.
    `continuous_usage`: every event tells the tokens so far.
    """

    requests: tuple[GenerateRequest, ...]
    model: str
    stream: bool
    include_usage: bool
    n: int
    top_logprobs: int | None
    prompt_logprobs: int | None
    echo: bool
    return_token_ids: bool
    continuous_usage: bool
    names: dict[str, str]

    def renamed(self, error: OctavoError) -> OctavoError:
        """`error` with its field named as the caller sent it."""
        return renamed(error, self.names)


def chat_job(raw: bytes, *, served: ServedModel, limits: ServerLimits, label: str) -> Job:
    """A chat body as one request. Raises RequestError or ModelNotFound."""
    wire = validated(ChatRequest, parse_object(raw))
    check_model(wire.model, served.model)
    logprobs = (wire.top_logprobs or 0) if wire.logprobs else None
    completion = wire.max_completion_tokens
    limit_name = "max_tokens" if completion is None else "max_completion_tokens"
    limit = wire.max_tokens if completion is None else completion
    params = sampling(wire, served.defaults, max_tokens=limit, logprobs=logprobs)
    request = GenerateRequest(
        messages=[turn(one) for one in wire.messages],
        chat=chat_options(wire),
        tools=[tool.neutral() for tool in wire.tools or ()],
        tool_choice=wire.tool_choice or "auto",
        params=params,
        priority=wire.priority or 0,
        salt=wire.cache_salt or "",
        id=label,
        truncate_prompt_tokens=wire.truncate_prompt_tokens,
        clamp_max_tokens=limits.clamp_max_tokens or limit is None,
    )
    return job(wire, (request,), logprobs, {**CHAT_NAMES, "max_tokens": limit_name})


def completion_job(raw: bytes, *, served: ServedModel, limits: ServerLimits, label: str) -> Job:
    """A completions body as one request per prompt. Raises RequestError or ModelNotFound."""
    wire = validated(CompletionRequest, parse_object(raw))
    check_model(wire.model, served.model)
    choices = min(limits.choices, served.max_live_sequences)  # more would never be let in
    each = max(wire.n or 1, wire.beams or 1)
    if len(wire.prompt) > limits.prompts or len(wire.prompt) * each > choices:
        message = (
            f"{len(wire.prompt)} prompts with {each} choices or beams each: at most "
            f"{limits.prompts} prompts and {choices} choices or beams fit in one request; "
            "send several."
        )
        raise RequestError(message, param="prompt", code="too_many_prompts")
    limit = wire.max_tokens or served.defaults.max_tokens or COMPLETION_TOKENS
    params = sampling(wire, served.defaults, max_tokens=limit, logprobs=wire.logprobs)
    requests = tuple(
        GenerateRequest(
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=None if isinstance(prompt, str) else prompt,
            params=params,
            priority=wire.priority or 0,
            salt=wire.cache_salt or "",
            id=label,
            add_special_tokens=wire.add_special_tokens is not False,
            truncate_prompt_tokens=wire.truncate_prompt_tokens,
            clamp_max_tokens=limits.clamp_max_tokens or wire.max_tokens is None,
        )
        for prompt in wire.prompt
    )
    return job(wire, requests, wire.logprobs, COMPLETION_NAMES)


def chat_options(wire: ChatRendering) -> ChatOptions:
    """How the conversation is rendered. Raises RequestError naming the field that is wrong."""
    options = ChatOptions(
        add_generation_prompt=wire.add_generation_prompt,
        continue_final_message=bool(wire.continue_final_message),
        template_kwargs=wire.chat_template_kwargs or {},
    )
    options.check()
    return options


def turn(message: ChatMessage) -> dict[str, Any]:
    """One chat message. Templates know no `developer`; it is the newer name of `system`."""
    role = "system" if message.role == "developer" else message.role
    found: dict[str, Any] = {"role": role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found


def sampling(
    wire: Generation,
    defaults: GenerationDefaults,
    *,
    max_tokens: int | None,
    logprobs: int | None,
) -> SamplingParams:
    """Sampling parameters with the model's defaults, else OpenAI's."""
    own = {
        "temperature": wire.temperature,
        "top_k": None if wire.top_k is None else max(0, wire.top_k),  # -1 means all, too
        "top_p": wire.top_p,
        "min_p": wire.min_p,
        "repetition_penalty": wire.repetition_penalty,
        "max_tokens": max_tokens,
    }
    return defaults.params(
        **{name: value for name, value in own.items() if value is not None},
        presence_penalty=wire.presence_penalty or 0.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        logit_bias=wire.logit_bias or None,
        allowed_token_ids=wire.allowed_token_ids,
        bad_words=tuple(wire.bad_words or ()),
        seed=wire.seed,
        stop=tuple(wire.stop or ()),
        stop_token_ids=tuple(wire.stop_token_ids or ()),
        include_stop_str_in_output=bool(wire.include_stop_str_in_output),
        skip_special_tokens=wire.skip_special_tokens is not False,
        ignore_eos=bool(wire.ignore_eos),
        min_tokens=wire.min_tokens or 0,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs(wire, logprobs),
        n=wire.n or 1,
        beam_width=wire.beams,
        length_penalty=1.0 if wire.length_penalty is None else wire.length_penalty,
        early_stopping=wire.early_stopping or False,
    )


def prompt_logprobs(wire: Generation, logprobs: int | None) -> int | None:
    """What to compute of the prompt: what was asked for, and what an echo shows."""
    shown = logprobs if wire.echo else None
    wanted = [count for count in (wire.prompt_logprobs, shown) if count is not None]
    return max(wanted, default=None)


def job(
    wire: Generation,
    requests: tuple[GenerateRequest, ...],
    top_logprobs: int | None,
    names: dict[str, str],
) -> Job:
    """What both APIs share of a job."""
    options = wire.stream_options
    return Job(
        requests=requests,
        model=wire.model,
        stream=bool(wire.stream),
        include_usage=options is not None and options.include_usage,
        n=wire.n or 1,
        top_logprobs=top_logprobs,
        prompt_logprobs=wire.prompt_logprobs,
        echo=bool(wire.echo),
        return_token_ids=bool(wire.return_token_ids),
        continuous_usage=options is not None and options.continuous_usage_stats,
        names=names,
    )
