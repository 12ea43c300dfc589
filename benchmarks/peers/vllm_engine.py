"""vLLM on CPU: compiled, bfloat16, in one process, prefix caching on."""

from __future__ import annotations

import os
import time

from benchmarks.peers.timing import Timing

CACHE_GIB = 2


class VllmEngine:
    def __init__(self, model: str, *, threads: int) -> None:
        os.environ |= {
            "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        import vllm  # after the variables, which it reads as it is imported

        self._version = str(vllm.__version__)
        self._params = vllm.SamplingParams
        self._delta = vllm.sampling_params.RequestOutputKind.DELTA
        self._engine = vllm.LLM(
            model, dtype="bfloat16", max_model_len=4096, max_num_seqs=64
        ).llm_engine
        self._next_id = 0

    def version(self) -> str:
        return self._version

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        params = self._params(
            temperature=0,
            max_tokens=out_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=self._delta,
        )
        start = time.perf_counter()
        counts: dict[str, int] = {}
        for prompt in prompts:
            name = str(self._next_id)
            self._next_id += 1
            counts[name] = 0
            self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        first: dict[str, float] = {}
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter() - start
            for output in outputs:
                counts[output.request_id] += len(output.outputs[0].token_ids)
                first.setdefault(output.request_id, now)
        seconds = time.perf_counter() - start
        assert set(counts.values()) == {out_tokens}, counts
        return Timing(seconds=seconds, first_s=tuple(first[name] for name in counts))


def load(model: str, *, threads: int) -> VllmEngine:
    return VllmEngine(model, threads=threads)
