"""What the server tells of itself: `/metrics`, `/v1/usage`, its log and its ledger.

Hears of every request by its record. Everything here runs on the event loop; the engine's thread
is asked nothing: what it left after its last step is enough.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from octavo.server.answers import UsageSums
from octavo.server.api_description import described
from octavo.server.contract import ServedEngine
from octavo.server.errors import HttpFault
from octavo.server.telemetry.generation import Outcome
from octavo.server.telemetry.ledger_file import Row
from octavo.server.telemetry.logs import log_request
from octavo.server.telemetry.metric import Reading
from octavo.server.telemetry.metrics import CONTENT_TYPE, MetricsPage
from octavo.server.telemetry.own_metrics import OWN_METRICS
from octavo.server.telemetry.prices import Prices
from octavo.server.telemetry.process import ProcessFigures
from octavo.server.telemetry.record import Record
from octavo.server.telemetry.traffic import Traffic
from octavo.server.telemetry.usage import PARAMETERS, Question, usage
from octavo.server.telemetry.vllm_metrics import VLLM_METRICS

ENGINE = "0"  # there is one; vLLM numbers its data-parallel ones


class RowKeeper(Protocol):
    """The ledger as it is used here."""

    path: Path
    lost_rows: int

    def add(self, row: Row) -> None: ...
    def close(self) -> None: ...


class Telemetry:
    """The observer of all requests and the handlers of what is seen from outside."""

    def __init__(
        self, engine: ServedEngine, *, ledger: RowKeeper | None = None, prices: Prices | None = None
    ) -> None:
        info = engine.info
        self._engine = engine
        self._ledger = ledger
        self._prices = prices
        self._asking = asyncio.Semaphore(1)  # sums read the whole ledger: one at a time
        self._started_at = time.time()
        self._facts = {
            "block_size": str(info.block_tokens),
            "cache_dtype": info.kv_cache_dtype,
            "enable_prefix_caching": str(info.prefix_caching),
            "num_gpu_blocks": str(info.num_blocks),
        }
        self.traffic = Traffic(max_model_len=info.max_model_len)
        labels = {"model_name": info.model, "engine": ENGINE}
        self._page = MetricsPage(
            (*VLLM_METRICS, *OWN_METRICS), self._reading, labels=labels, clock=time.monotonic
        )

    def add_to(self, app: FastAPI) -> None:
        app.get("/metrics", response_class=PlainTextResponse)(self.metrics)
        usage = described(answer=UsageSums, refusals={"404": "The server keeps no ledger"})
        usage["openapi_extra"] = {"parameters": PARAMETERS}
        app.get("/v1/usage", **usage)(self.usage)

    async def close(self) -> None:
        if self._ledger is not None:
            await asyncio.to_thread(self._ledger.close)

    # -- what is asked ----------------------------------------------------------------------------

    async def metrics(self) -> Response:
        """Prometheus' text format."""
        return Response(self._page.text(), headers={"content-type": CONTENT_TYPE})

    async def usage(self, request: Request) -> Response:
        """Tokens and costs by day, key or model."""
        if self._ledger is None:
            message = "This server keeps no ledger; start it without --no-ledger."
            raise HttpFault(404, message, code="ledger_off")
        question = Question.of(request.query_params)
        async with self._asking:
            return JSONResponse(await asyncio.to_thread(usage, self._ledger.path, question))

    def _reading(self) -> Reading:
        return Reading(
            stats=self._engine.stats(),
            traffic=self.traffic,
            process=ProcessFigures.now(started_at=self._started_at),
            facts=self._facts,
            ledger_lost_rows=0 if self._ledger is None else self._ledger.lost_rows,
            bytes_per_token=self._engine.info.bytes_per_token,
            capacity_tokens=self._engine.info.capacity_tokens,
        )

    # -- what is heard ----------------------------------------------------------------------------

    def now(self) -> float:
        return self._engine.now()

    def first_token(self, seconds: float) -> None:
        self.traffic.first_token.add(seconds)

    def gap(self, seconds: float) -> None:
        self.traffic.inter_token.add(seconds)

    def ended(self, record: Record, outcome: Outcome) -> None:
        self.traffic.ended(outcome)
        if self._ledger is not None:
            self._ledger.add(self._row(record, outcome))

    def answered(self, record: Record) -> None:
        self.traffic.answers[record.answer] += 1
        log_request(record, self._engine.info.model)

    def _row(self, record: Record, outcome: Outcome) -> Row:
        prices = self._prices
        return Row(
            ended_at=outcome.ended_at,
            request_id=record.request_id,
            key_id=record.key_id,
            model=self._engine.info.model,
            finish=outcome.finish,
            prompt_tokens=outcome.prompt_tokens,
            read_tokens=outcome.read_tokens,
            written_5m_tokens=outcome.written_5m_tokens,
            written_1h_tokens=outcome.written_1h_tokens,
            written_implicit_tokens=outcome.written_implicit_tokens,
            unkept_tokens=outcome.unkept_tokens,
            output_tokens=outcome.output_tokens,
            first_token_seconds=outcome.first_token_seconds,
            duration_seconds=outcome.duration_seconds,
            block_seconds=outcome.block_seconds,
            cost_dollars=None if prices is None else prices.cost_dollars(outcome),
        )
