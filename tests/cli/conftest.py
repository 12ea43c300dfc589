"""The command line over an engine that plays scripted chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from octavo.cli import local
from octavo.cli.main import main
from octavo.core.errors import OctavoError
from octavo.core.receipt import Receipt
from octavo.engine.generation_defaults import GenerationDefaults
from octavo.engine.types import Chunk, GenerateRequest, Usage

Step = Chunk | Callable[[], None]


@dataclass
class Info:
    model: str = "fake-model"
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)


class FakeLocal:
    """Plays `steps` for every request; a callable step is called in its place."""

    def __init__(self) -> None:
        self.info = Info()
        self.options: dict[str, Any] = {}
        self.model = ""
        self.requests: list[GenerateRequest] = []
        self.refusals: list[OctavoError | None] = []
        self.ended_early = 0
        self.closed = False
        self.steps: list[Step] = [
            Chunk(0, "Hel", (1,)),
            Chunk(0, "lo", (2,)),
            Chunk(
                *(0, "", (3,)),
                finish_reason="stop",
                usage=Usage(40, 3, 32, 5),
                receipt=Receipt(read=32, written_implicit=5, unkept=3),
            ),
        ]

    def open(self, model: str, options: dict[str, Any]) -> FakeLocal:
        self.model, self.options = model, options
        return self

    def stream(self, request: GenerateRequest) -> Iterator[Chunk]:
        self.requests.append(request)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        done = False
        try:
            for step in self.steps:
                if isinstance(step, Chunk):
                    yield step
                else:
                    step()
            done = True
        finally:
            self.ended_early += not done

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeLocal:
    fake = FakeLocal()
    monkeypatch.setattr(local, "open_engine", fake.open)
    return fake


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def octavo(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run one command line in this process."""

    def run(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        out, err = capsys.readouterr()
        code = caught.value.code
        assert isinstance(code, int)
        return Result(code, out, err)

    return run
