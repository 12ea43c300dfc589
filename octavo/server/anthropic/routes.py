"""The handlers of the Anthropic API. Knows no tensors and no sockets."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from octavo.core.errors import OctavoError
from octavo.server.anthropic import errors as anthropic_errors
from octavo.server.anthropic.answers import (
    AnthropicError,
    AnthropicEvent,
    AnthropicMessage,
    CountedTokens,
)
from octavo.server.anthropic.jobs import Translator
from octavo.server.anthropic.reply import PING, MessageReply
from octavo.server.anthropic.wire import CountRequest, MessagesRequest
from octavo.server.api_description import described
from octavo.server.contract import ServedEngine
from octavo.server.disconnect import while_connected
from octavo.server.errors import fault_of
from octavo.server.intake import read_work
from octavo.server.limits import ServerLimits
from octavo.server.sse import EventStream, event
from octavo.server.streams import Streams


class AnthropicRoutes:
    """The handlers of one engine. `keep_agent_headers`: leave the agents' header line in."""

    def __init__(
        self, engine: ServedEngine, limits: ServerLimits, *, keep_agent_headers: bool
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._translator = Translator(
            engine.info,
            keep_agent_headers=keep_agent_headers,
            clamp_max_tokens=limits.clamp_max_tokens,
        )

    def add_to(self, app: FastAPI) -> None:
        root = anthropic_errors.ROOT
        messages = described(
            MessagesRequest, answer=AnthropicMessage, event=AnthropicEvent, error=AnthropicError
        )
        count = described(CountRequest, answer=CountedTokens, error=AnthropicError)
        app.post(root, **messages)(self.messages)
        app.post(f"{root}/count_tokens", **count)(self.count_tokens)

    async def messages(self, request: Request) -> Response:
        """Body → job → stream → answer, whole or in events."""
        job = await read_work(request, self._limits, self._translator.message)
        try:
            streams = await Streams.open(self._engine, (job.request,))
        except OctavoError as error:
            raise job.renamed(error) from None
        reply = MessageReply(job, streams)
        if job.stream:
            request_id: str = request.state.request_id
            return EventStream(
                reply.events(),
                lambda error: failed(error, request_id),
                streams.cancel,
                stall_seconds=self._limits.stall_seconds,
                ping=PING,
            )
        try:
            body = await while_connected(request.receive, reply.whole())
        finally:
            await streams.cancel()
        return Response(body, media_type="application/json")

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the prompt of the same body has, rendered in the same way."""
        job = await read_work(request, self._limits, self._translator.count)
        try:
            tokens = await self._engine.tokenize(job.request)
        except OctavoError as error:
            raise job.renamed(error) from None
        return JSONResponse({"input_tokens": len(tokens)})


def failed(error: Exception, request_id: str) -> bytes:
    """The last event of a stream that fails after it began."""
    fault = anthropic_errors.translated(fault_of(error))
    return event(anthropic_errors.body(fault, request_id), name=b"error")
