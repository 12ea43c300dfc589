"""OpenVINO GenAI's continuous batching, prefix caching on."""

from __future__ import annotations

import time

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.peers.timing import Timing

CACHE_GIB = 2
STEP_TOKENS = 2048


class OpenVinoEngine:
    def __init__(self, model: str, *, threads: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.enable_prefix_caching = True
        options = {"INFERENCE_NUM_THREADS": threads}
        self._pipe = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", options)
        self._next_id = 0

    def version(self) -> str:
        return str(genai.__version__)

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        config = genai.GenerationConfig()
        config.max_new_tokens = out_tokens
        config.do_sample = False
        config.ignore_eos = True
        start = time.perf_counter()
        handles = []
        for prompt in prompts:
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            handles.append(self._pipe.add_request(self._next_id, ids, config))
            self._next_id += 1
        first: dict[int, float] = {}
        counts = [0] * len(prompts)
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            now = time.perf_counter() - start
            for i, handle in enumerate(handles):
                while handle.can_read():
                    counts[i] += sum(len(o.generated_ids) for o in handle.read().values())
                    first.setdefault(i, now)
        seconds = time.perf_counter() - start
        assert counts == [out_tokens] * len(prompts), counts
        return Timing(seconds=seconds, first_s=tuple(first[i] for i in range(len(prompts))))


def load(model: str, *, threads: int) -> OpenVinoEngine:
    return OpenVinoEngine(model, threads=threads)
