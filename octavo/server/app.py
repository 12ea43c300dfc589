"""The application: routes, lifespan and how errors leave it. Knows no tensors and no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

import octavo
from octavo.core.errors import ModelNotFound, OctavoError
from octavo.server.access.admission import Admission
from octavo.server.access.auth import Auth
from octavo.server.access.doors import Doors
from octavo.server.access.guard import Guard
from octavo.server.access.keys import Keyring
from octavo.server.answers import (
    ChatCompletion,
    ChatEvent,
    Health,
    ModelCard,
    Models,
    Ready,
    TextCompletion,
    TextEvent,
)
from octavo.server.anthropic.routes import AnthropicRoutes
from octavo.server.api_description import describe, described
from octavo.server.contract import HeldEngine, ServedEngine
from octavo.server.disconnect import while_connected
from octavo.server.engine_routes import EngineRoutes
from octavo.server.envelope import Envelope
from octavo.server.errors import HttpFault, fault_of, quoted
from octavo.server.in_flight import InFlight, Load
from octavo.server.intake import read_work
from octavo.server.limits import ServerLimits
from octavo.server.openai.jobs import Job, chat_job, completion_job
from octavo.server.openai.reply import Reply
from octavo.server.openai.shapes import ChatShape, CompletionShape, Shape
from octavo.server.openai.wire import ChatRequest, CompletionRequest
from octavo.server.sse import EventStream, event
from octavo.server.streams import Streams
from octavo.server.telemetry.telemetry import Telemetry

Translate = Callable[..., Job]


def create_app(
    running: HeldEngine,
    *,
    limits: ServerLimits | None = None,
    hosts: frozenset[str] | None = None,
    keyring: Keyring | None = None,
    share_cache: bool = False,
    doors: Doors | None = None,
    telemetry: Telemetry | None = None,
    keep_agent_headers: bool = False,
) -> FastAPI:
    """The ASGI application over a running engine, which it closes at shutdown.

    `hosts` are the host names it answers to; None is any (right only beyond loopback). Without keys
    in `keyring` it asks nobody for one. `share_cache`: keys may read each other's cached blocks.
    `telemetry` is closed with it; without one there is no ledger.
    `keep_agent_headers`: /v1/messages renders the line that coding agents put first, new each time.
    """
    limits, keyring = limits or ServerLimits(), keyring or Keyring()
    engine: ServedEngine = Admission(
        running,
        limits,
        doors=doors or Doors(),
        n_owners=keyring.n_owners,
        isolated=not share_cache,
    )
    seen = telemetry or Telemetry(engine)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        try:
            yield
        except asyncio.CancelledError:
            pass  # a second stop signal: the same end, only sooner
        finally:
            await engine.close()
            await seen.close()

    app = FastAPI(
        title="Octavo",
        version=octavo.__version__,
        lifespan=lifespan,
        # The usual documentation pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    load = Load()
    app.add_exception_handler(HTTPException, refuse_route)
    app.add_middleware(InFlight, load=load)
    app.add_middleware(Auth, keyring=keyring)
    app.add_middleware(Guard, limits=limits, hosts=hosts)
    app.add_middleware(Envelope, observer=seen)  # added last, so outermost
    Routes(engine, limits).add_to(app)
    seen.add_to(app)
    EngineRoutes(engine, limits, load).add_to(app)
    AnthropicRoutes(engine, limits, keep_agent_headers=keep_agent_headers).add_to(app)
    describe(app)
    return app


async def refuse_route(request: Request, error: Exception) -> Response:
    """Unknown paths and methods in the shape of every other error."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not allowed here."
        headers = (("allow", ", ".join(allowed_methods(request))),)
        raise HttpFault(405, message, code="method_not_allowed", headers=headers)
    if error.status_code == 404:
        message = f"There is nothing at {quoted(request.scope['path'])}."
        raise HttpFault(404, message, code="unknown_url")
    raise HttpFault(error.status_code, "The request cannot be served.", code="invalid_request")


def allowed_methods(request: Request) -> list[str]:
    """What the path of a request may be asked with: one path may have several routes."""
    routes: list[BaseRoute] = request.app.routes
    at_path = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return sorted({name for each in at_path for name in getattr(each, "methods", None) or ()})


class Routes:
    """The handlers of one engine."""

    def __init__(self, engine: ServedEngine, limits: ServerLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._created = int(time.time())
        info = engine.info
        self._fingerprint = f"octavo-{octavo.__version__}-{info.backend}-{info.kv_cache_dtype}"

    def add_to(self, app: FastAPI) -> None:
        app.get("/health", **described(answer=Health, also=("503",)))(self.health)
        app.get("/ready", **described(answer=Ready, also=("503",)))(self.ready)
        app.get("/v1/models", **described(answer=Models))(self.models)
        app.get("/v1/models/{model:path}", **described(answer=ModelCard))(self.model)
        chat = described(ChatRequest, answer=ChatCompletion, event=ChatEvent)
        completions = described(CompletionRequest, answer=TextCompletion, event=TextEvent)
        app.post("/v1/chat/completions", **chat)(self.chat)
        app.post("/v1/completions", **completions)(self.completions)

    async def health(self) -> Response:
        """Alive: the loop answers and the engine's thread runs. Says nothing about load."""
        alive = self._engine.alive()
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 503)

    async def ready(self) -> Response:
        """Ready for requests, or 503 with the reason."""
        reason = self._engine.ready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, 503)

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, model: str) -> Response:
        if model != self._engine.info.model:
            message = f"The model {quoted(model)} does not exist here."
            raise ModelNotFound(message, param="model")
        return JSONResponse(self._card())

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, chat_job, ChatShape)

    async def completions(self, request: Request) -> Response:
        return await self._answer(request, completion_job, CompletionShape)

    async def _answer(
        self, request: Request, translate: Translate, shape: Callable[..., Shape]
    ) -> Response:
        """Body → job → streams → answer, whole or in events."""
        job = await self._job(request, translate)
        try:
            streams = await Streams.open(self._engine, job.requests)
        except OctavoError as error:
            raise job.renamed(error) from None
        writer = shape(job, self._engine.token_bytes)
        reply = Reply(job, writer, fingerprint=self._fingerprint)
        if job.stream:
            return EventStream(
                reply.events(writer.parts(streams)),
                lambda error: event(fault_of(error).body()),
                streams.cancel,
                stall_seconds=self._limits.stall_seconds,
            )
        try:
            body = await while_connected(request.receive, reply.whole(writer.parts(streams)))
        finally:
            await streams.cancel()
        return Response(body, media_type="application/json")

    async def _job(self, request: Request, translate: Translate) -> Job:
        def work(raw: bytes, label: str) -> Job:
            return translate(raw, served=self._engine.info, limits=self._limits, label=label)

        return await read_work(request, self._limits, work)

    def _card(self) -> dict[str, Any]:
        info = self._engine.info
        return {
            "id": info.model,
            "object": "model",
            "created": self._created,
            "owned_by": "octavo",
            "max_model_len": info.max_model_len,
        }
