"""Octavo with a step budget for throughput, as the others have it; otherwise by default."""

from __future__ import annotations

import time

import octavo
from benchmarks.peers.timing import Timing
from octavo import LLM, SamplingParams

STEP_TOKENS = 2048


class OctavoEngine:
    def __init__(self, model: str, *, threads: int) -> None:
        self._llm = LLM(model, threads=threads, max_num_batched_tokens=STEP_TOKENS)

    def version(self) -> str:
        return octavo.__version__

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        params = SamplingParams(temperature=0, max_tokens=out_tokens, ignore_eos=True)
        start = time.perf_counter()
        outputs = self._llm.generate(prompts, params)
        seconds = time.perf_counter() - start
        # Receipts tell when; their clock is tied to ours at the end.
        first, last = [], []
        for output in outputs:
            receipt = output.receipt
            assert len(output.outputs[0].token_ids) == out_tokens
            assert receipt is not None
            assert receipt.first_token_at is not None
            assert receipt.finished_at is not None
            first.append(receipt.first_token_at)
            last.append(receipt.finished_at)
        offset = seconds - max(last)
        return Timing(seconds=seconds, first_s=tuple(at + offset for at in first))


def load(model: str, *, threads: int) -> OctavoEngine:
    return OctavoEngine(model, threads=threads)
