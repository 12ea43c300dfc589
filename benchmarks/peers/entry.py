"""Who takes part: an engine with the weights it runs from."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.place import GGUF_NAME, OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`adapter` is a module of this package, `environment` the folder of its Python."""

    engine: str
    weights: str
    adapter: str
    environment: str
    model: str

    @property
    def title(self) -> str:
        return f"{self.engine} {self.weights}"


ENTRIES = (
    Entry(
        engine="Octavo",
        weights="Q4_1",
        adapter="octavo_engine",
        environment=OURS,
        model=GGUF_NAME,
    ),
    Entry(
        engine="llama.cpp",
        weights="Q4_1",
        adapter="llama_engine",
        environment="llama_cpp",
        model=GGUF_NAME,
    ),
    Entry(
        engine="llama.cpp",
        weights="Q4_0",
        adapter="llama_engine",
        environment="llama_cpp",
        model="smollm2-q4_0.gguf",
    ),
    Entry(
        engine="llama.cpp",
        weights="Q8_0",
        adapter="llama_engine",
        environment="llama_cpp",
        model="smollm2-q8_0.gguf",
    ),
    Entry(
        engine="OpenVINO",
        weights="fp16",
        adapter="openvino_engine",
        environment="openvino",
        model="smollm2-openvino-fp16",
    ),
    Entry(
        engine="OpenVINO",
        weights="int8",
        adapter="openvino_engine",
        environment="openvino",
        model="smollm2-openvino-int8",
    ),
    Entry(
        engine="vLLM",
        weights="bf16",
        adapter="vllm_engine",
        environment="vllm",
        model="smollm2-bf16",
    ),
)
