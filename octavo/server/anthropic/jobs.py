"""From an Anthropic body to a neutral request. Knows no HTTP and no engine; runs on any thread."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.errors import OctavoError, RequestError
from octavo.core.sampling import SamplingParams
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.tools import Tool, check_tools
from octavo.engine.types import GenerateRequest
from octavo.server.anthropic.prompt import conversation, tools
from octavo.server.anthropic.wire import CountRequest, MessagesRequest
from octavo.server.body import parse_object
from octavo.server.contract import ServedModel
from octavo.server.intake import check_model, renamed, validated

# What the engine calls a field, and what this API calls it.
NAMES = {"prompt": "messages", "prompt_token_ids": "messages", "stop": "stop_sequences"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageJob:
    """One HTTP request's work and how to answer."""

    request: GenerateRequest
    model: str
    stream: bool

    def renamed(self, error: OctavoError) -> OctavoError:
        """`error` with its field named as the caller sent it.

        The engine counts its own messages, of which the system prompt is one and each result.
        """
        if error.param is not None and error.param.startswith("messages."):
            error.param = "messages"
        return renamed(error, NAMES)


@dataclass(frozen=True, slots=True)
class Translator:
    """Bodies for one model. `keep_agent_headers`: render the agents' header line, too.

    `clamp_max_tokens`: False has a max_tokens beyond the room refused.
    """

    served: ServedModel
    keep_agent_headers: bool = False
    clamp_max_tokens: bool = True

    def message(self, raw: bytes, label: str) -> MessageJob:
        """The work of /v1/messages. Raises RequestError or ModelNotFound."""
        wire = validated(MessagesRequest, parse_object(raw))
        request = self._request(wire, params=sampling(wire, self.served.defaults), label=label)
        return MessageJob(request=request, model=wire.model, stream=bool(wire.stream))

    def count(self, raw: bytes, label: str) -> MessageJob:
        """The work of /v1/messages/count_tokens: the same prompt."""
        wire = validated(CountRequest, parse_object(raw))
        request = self._request(wire, params=None, label=label)
        return MessageJob(request=request, model=wire.model, stream=False)

    def _request(
        self, wire: CountRequest, *, params: SamplingParams | None, label: str
    ) -> GenerateRequest:
        check_model(wire.model, self.served.model)
        built = conversation(wire, keep_agent_headers=self.keep_agent_headers)
        return GenerateRequest(
            messages=built.messages,
            tools=checked_tools(wire),
            tool_choice="auto" if wire.tool_choice is None else wire.tool_choice.type,
            breakpoints=built.breakpoints(),
            params=params,
            id=label,
            clamp_max_tokens=self.clamp_max_tokens,
        )


def checked_tools(wire: CountRequest) -> tuple[Tool, ...]:
    """What the model may call. Raises RequestError naming the field as the caller sent it."""
    found = tools(wire)
    try:
        check_tools(found)
    except RequestError as error:
        if error.param is not None:
            error.param = error.param.replace(".parameters", ".input_schema")
            error.message = error.message.replace(".parameters", ".input_schema", 1)
        raise
    return found


def sampling(wire: MessagesRequest, defaults: GenerationDefaults) -> SamplingParams:
    """Sampling parameters with the model's defaults, else Anthropic's."""
    own = {"temperature": wire.temperature, "top_p": wire.top_p, "top_k": wire.top_k}
    return defaults.params(
        **{name: value for name, value in own.items() if value is not None},
        max_tokens=wire.max_tokens,
        stop=tuple(wire.stop_sequences or ()),
    )
