"""vLLM's small routes about the engine: tokens, version, liveness, load, emptying the cache.

Their paths, fields and answers are vLLM's, so that its clients find them. Knows no sampling.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.core.errors import Unsupported
from octavo.engine.types import GenerateRequest
from octavo.server.answers import CacheReset, Detokenized, ServerLoad, Tokenized, Version
from octavo.server.api_description import described
from octavo.server.body import parse_object
from octavo.server.contract import ServedEngine
from octavo.server.errors import quoted
from octavo.server.in_flight import Load
from octavo.server.intake import check_model, read_work, validated
from octavo.server.limits import ServerLimits
from octavo.server.openai.jobs import chat_options, turn
from octavo.server.tokens_wire import Detokenize, TokenizeChat, TokenizeText

INLINE_TOKENS = 4096
Wire = TypeVar("Wire", TokenizeText, TokenizeChat, Detokenize)

# vLLM's options, of which none is served: both must be off.
RESET_NAMES = ("reset_running_requests", "reset_external")
OFF = ("false", "False", "0")
RESET_OPTIONS = [
    {"name": name, "in": "query", "required": False, "schema": {"enum": list(OFF)}}
    for name in RESET_NAMES
]


class EngineRoutes:
    """The handlers. `load` counts what the server is answering."""

    def __init__(self, engine: ServedEngine, limits: ServerLimits, load: Load) -> None:
        self._engine = engine
        self._limits = limits
        self._load = load

    def add_to(self, app: FastAPI) -> None:
        tokenize = described(TokenizeText, TokenizeChat, answer=Tokenized)
        app.post("/tokenize", **tokenize)(self.tokenize)
        app.post("/detokenize", **described(Detokenize, answer=Detokenized))(self.detokenize)
        app.get("/version", **described(answer=Version))(self.version)
        app.get("/load", **described(answer=ServerLoad))(self.load)
        reset = described(answer=CacheReset) | {"openapi_extra": {"parameters": RESET_OPTIONS}}
        app.post("/reset_prefix_cache", **reset)(self.reset_prefix_cache)
        dead: dict[int | str, dict[str, Any]] = {503: {"description": "The engine is dead"}}
        app.get("/ping", response_class=Response, responses=dead)(self.ping)
        app.post("/ping", response_class=Response, responses=dead)(self.ping)

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a prompt or conversation, as a generation would have them."""
        prompt, wants_strings = await read_work(request, self._limits, self._prompt)
        tokens = await self._engine.tokenize(prompt)

        def answer() -> bytes:
            strings = [self._text(token) for token in tokens] if wants_strings else None
            told = {
                "count": len(tokens),
                "max_model_len": self._engine.info.max_model_len,
                "tokens": tokens,
                "token_strs": strings,
            }
            return bytes(JSONResponse(told).body)

        # Hundreds of thousands of tokens would hold up the loop.
        body = answer() if len(tokens) <= INLINE_TOKENS else await asyncio.to_thread(answer)
        return Response(body, media_type="application/json")

    def _prompt(self, raw: bytes, label: str) -> tuple[GenerateRequest, bool]:
        """What to tokenise, and whether to show each token's text."""
        del label
        body = parse_object(raw)
        wire: TokenizeChat | TokenizeText
        if "messages" in body:
            wire = self._checked(TokenizeChat, body)
            messages = [turn(one) for one in wire.messages]
            tools = [tool.neutral() for tool in wire.tools or ()]
            prompt = GenerateRequest(messages=messages, tools=tools, chat=chat_options(wire))
        else:
            wire = self._checked(TokenizeText, body)
            special = wire.add_special_tokens is not False
            prompt = GenerateRequest(prompt=wire.prompt, add_special_tokens=special)
        return prompt, bool(wire.return_token_strs)

    def _tokens(self, raw: bytes, label: str) -> Detokenize:
        del label
        return self._checked(Detokenize, parse_object(raw))

    def _checked(self, model: type[Wire], body: dict[str, Any]) -> Wire:
        """The body as `model`, of the model that is served if it names one."""
        wire = validated(model, body)
        if wire.model is not None:
            check_model(wire.model, self._engine.info.model)
        return wire

    def _text(self, token: int) -> str:
        return self._engine.token_bytes(token).decode("utf-8", "replace")

    async def detokenize(self, request: Request) -> Response:
        """The text of tokens, special ones spelled out."""
        wire = await read_work(request, self._limits, self._tokens)
        return JSONResponse({"prompt": await self._engine.detokenize(wire.tokens)})

    async def version(self) -> Response:
        """The server's version."""
        return JSONResponse({"version": octavo.__version__})

    async def ping(self) -> Response:
        """Whether the engine lives, in the status alone."""
        return Response(status_code=200 if self._engine.alive() else 503)

    async def load(self) -> Response:
        """How many requests of the API are being answered or wait."""
        return JSONResponse({"server_load": self._load.requests})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Forget every cached prefix. Blocks in use stay until they are let go; nobody finds them.

        Running requests are not touched, so nothing that would end or restart them is served.
        """
        for name, value in request.query_params.multi_items():
            if name not in RESET_NAMES or value not in OFF:
                shown = quoted(name)
                raise Unsupported(f"{shown} is not supported; leave it out.", param=shown[1:-1])
        cleared = await self._engine.clear_cache()
        return JSONResponse(
            {"freed_blocks": cleared.freed_blocks, "held_blocks": cleared.held_blocks}
        )
