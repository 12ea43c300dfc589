"""llama.cpp's reading of a text, from its own environment (`python -m benchmarks.peers.setup`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import torch

from benchmarks.accuracy.reading import TILE
from benchmarks.peers import place

ROOT = Path(__file__).resolve().parent.parent.parent


def installed() -> bool:
    return place.python("llama_cpp").exists()


def logits(path: Path, tokens: Sequence[int], *, vocab_size: int) -> Iterator[torch.Tensor]:
    """Its logits of `tokens`, in tiles float32 [at most TILE, vocab]."""
    command = [str(place.python("llama_cpp")), "-m", "benchmarks.accuracy.llama_reading"]
    with subprocess.Popen(
        [*command, str(path), "2"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(list(tokens)).encode())
        process.stdin.close()
        for start in range(0, len(tokens), TILE):
            rows = min(TILE, len(tokens) - start)
            yield _take(process.stdout, rows, vocab_size)


def _take(stream: IO[bytes], rows: int, vocab_size: int) -> torch.Tensor:
    data = bytearray(stream.read(rows * vocab_size * 4))
    if len(data) < rows * vocab_size * 4:
        raise SystemExit("llama.cpp's reading ended early: see its message above")
    return torch.frombuffer(data, dtype=torch.float32).view(rows, vocab_size)
