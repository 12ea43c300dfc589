"""`python -m benchmarks.accuracy`: every format of weights and of K and V that is at hand."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.accuracy import peer
from benchmarks.accuracy.distance import Distance, distances
from benchmarks.accuracy.reading import Reader
from benchmarks.accuracy.table import tables
from benchmarks.peers import place
from benchmarks.record import save
from octavo.compute.hub import resolve
from octavo.compute.weights import open_source
from octavo.engine.open_tokenizer import open_tokenizer

TEXT = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "news_from_nowhere.txt"
KV_DTYPES = ("float32", "float16", "bfloat16", "int8", "fp8")
CONTEXTS = (4096, 7500)
LAST = 512
FILES = ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "F16")  # beside Q4_1, which is the default model
FOLDER = "smollm2-bf16"
OURS, PEER, PEER_KV = "octavo", "llama.cpp", "llama.cpp, float16"


class Comparison:
    """Readings of one text with the weights of one file, and how far each is from plain torch's."""

    def __init__(self, path: Path, tokens: list[int]) -> None:
        self._path, self._tokens = path, tokens
        self._readings: dict[str, Iterator[torch.Tensor]] = {}

    def add(self, name: str, **options: Any) -> None:
        """The kernels', with such options of EngineConfig."""
        self._readings[name] = self._read(attention_backend="native", **options)

    def add_peer(self, name: str) -> None:
        """llama.cpp's, if it is there."""
        if peer.installed():
            vocab_size = open_source(self._path).config().vocab_size
            self._readings[name] = peer.logits(self._path, self._tokens, vocab_size=vocab_size)

    def run(self) -> dict[str, Distance]:
        oracle = self._read(dtype="float32", attention_backend="torch")
        found = distances(oracle, self._readings)
        for name, one in found.items():
            print(f"{self._path.name}, {name}: KL {one.mean:.5f}, top-1 {one.top1:.4f}", flush=True)
        return found

    def _read(self, **options: Any) -> Iterator[torch.Tensor]:
        reader = Reader(self._path, len(self._tokens), **options)
        return reader.logits(reader.hidden(self._tokens))


def figures_of(found: Distance) -> dict[str, Any]:
    return {
        "kl": round(found.mean, 5),
        "p99": round(found.p99, 4),
        "top1": round(found.top1, 4),
    }


def at_contexts(found: Distance) -> dict[str, Any]:
    at = {str(n): round(found.part(n - LAST, n).mean, 5) for n in CONTEXTS}
    return figures_of(found) | {"at": at}


def of_default_model(path: Path, tokens: list[int]) -> dict[str, Distance]:
    """By the dtype of K and V, over the longest context."""
    comparison = Comparison(path, tokens)
    for dtype in KV_DTYPES:
        comparison.add(dtype, kv_cache_dtype=dtype)
    comparison.add_peer(PEER_KV)
    return comparison.run()


def of_files(tokens: list[int]) -> dict[str, dict[str, Distance]]:
    """The other files that the setup of the peers has made, each against itself in float32."""
    found: dict[str, dict[str, Distance]] = {}
    for kind in FILES:
        path = place.model(f"smollm2-{kind.lower()}.gguf")
        if not path.exists():
            print(f"{kind} is left out: {path.name} is not there")
            continue
        comparison = Comparison(path, tokens)
        comparison.add(OURS)
        comparison.add_peer(PEER)
        found[kind] = comparison.run()
    return found


def of_folder(tokens: list[int]) -> dict[str, dict[str, Distance]]:
    """bfloat16 tensors as they are and rounded at load, against the values before rounding."""
    path = place.model(FOLDER)
    if not path.exists():
        print(f"bfloat16 weights are left out: {path.name} is not there")
        return {}
    comparison = Comparison(path, tokens)
    comparison.add("bfloat16")
    for kind in ("int8", "int4"):
        comparison.add(f"`--quantization {kind}` of bfloat16", quantization=kind)
    return {name: {OURS: one} for name, one in comparison.run().items()}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    path = resolve("smollm2")
    tokenizer = open_tokenizer(path, open_source(path).metadata())
    tokens = tokenizer.encode(TEXT.read_text(encoding="utf-8"))[: CONTEXTS[-1]]
    if not peer.installed():
        print("llama.cpp is left out: `python -m benchmarks.peers.setup llama.cpp` installs it")
    kv = of_default_model(path, tokens)
    short = CONTEXTS[0]
    sides = {OURS: kv["float16"], PEER: kv.get(PEER_KV)}
    weights = {"Q4_1": {who: one.part(0, short) for who, one in sides.items() if one}}
    weights |= of_files(tokens[:short]) | of_folder(tokens[:short])
    figures = {
        "tokens": short,
        "contexts": list(CONTEXTS),
        "last": LAST,
        "weights": {
            name: {who: figures_of(one) for who, one in readings.items()}
            for name, readings in weights.items()
        },
        "kv": {name: at_contexts(one) for name, one in kv.items()},
    }
    save("accuracy", figures)
    print(tables(figures))


if __name__ == "__main__":
    main()
