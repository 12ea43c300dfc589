"""A real engine behind a real server, on an ephemeral port: a tiny model with a small tokenizer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import LlamaForCausalLM

from octavo.engine.async_engine import AsyncEngine
from octavo.server.access.guard import LOOPBACK
from octavo.server.app import create_app
from octavo.server.limits import ServerLimits
from octavo.server.listen import bound_socket, make_server
from octavo.server.telemetry.ledger import Ledger
from octavo.server.telemetry.prices import Prices
from octavo.server.telemetry.telemetry import Telemetry
from tests.checkpoints import tiny_llama
from tests.engine.conftest import CHATML, byte_level
from tests.engine.tiny import DEFAULTS
from tests.server.conftest import LIMITS

MODEL = "tiny"
VOCAB = 430


def talker(folder: Path, *, bos: bool = False, **overrides: Any) -> LlamaForCausalLM:
    """Write the checkpoint: its answers are noise, but text. `overrides` are LlamaConfig fields."""
    model = tiny_llama(folder, vocab_size=VOCAB, **overrides)
    byte_level(bos=bos).save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
    )
    return model


@contextmanager
def serving(
    folder: Path,
    *,
    limits: ServerLimits = LIMITS,
    app: Mapping[str, Any] = MappingProxyType({}),
    ledger: Ledger | None = None,
    prices: Prices | None = None,
    keep_agent_headers: bool = False,
    **options: Any,
) -> Iterator[tuple[AsyncEngine, str]]:
    """The engine of the checkpoint in `folder`, and the URL at which it is served.

    `app` goes to the application, `options` to the engine.
    """
    engine = AsyncEngine.load(str(folder), served_model_name=MODEL, **{**DEFAULTS, **options})
    listener = bound_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    telemetry = Telemetry(engine, ledger=ledger, prices=prices)
    made = create_app(
        engine,
        limits=limits,
        hosts=LOOPBACK,
        telemetry=telemetry,
        keep_agent_headers=keep_agent_headers,
        **app,
    )
    server = make_server(made, limits, doors=app.get("doors"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield engine, url
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive()
