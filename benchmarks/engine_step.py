"""The default model through the whole engine: prefill, decode alone and together, shared prefix."""

from __future__ import annotations

import random
import time

from benchmarks.record import write
from octavo import LLM, SamplingParams


def prompts(n: int, length: int, *, common: int = 0) -> list[dict[str, list[int]]]:
    rnd = random.Random(1)
    head = [rnd.randrange(100, 40_000) for _ in range(common)]
    return [
        {"prompt_token_ids": [*head, *(rnd.randrange(100, 40_000) for _ in range(length - common))]}
        for _ in range(n)
    ]


def generate(llm: LLM, work: list[dict[str, list[int]]], n_out: int) -> float:
    """Seconds for all of `work`, `n_out` tokens each, from an empty cache."""
    llm.clear_cache()
    params = SamplingParams(temperature=0, max_tokens=n_out, ignore_eos=True)
    start = time.perf_counter()
    llm.generate(work, params)
    return time.perf_counter() - start


def main() -> None:
    llm = LLM("smollm2")
    generate(llm, prompts(1, 64), 8)
    figures: dict[str, float | str] = {"dtype": llm.info.dtype, "threads": llm.info.threads}
    seconds = generate(llm, prompts(1, 1024), 1)
    figures["prefill of 1,024 tokens, tokens/s"] = round(1024 / seconds, 1)
    for n in (1, 8, 32):
        first = generate(llm, prompts(n, 16), 1)
        whole = generate(llm, prompts(n, 16), 49)
        figures[f"decode, {n} at once, tokens/s"] = round(n * 48 / (whole - first), 1)
    shared = prompts(16, 1088, common=1024)
    figures["16 requests, 1,024 of 1,088 tokens in common, 16 out, s"] = round(
        generate(llm, shared, 16), 2
    )
    llm.close()
    off = LLM("smollm2", enable_prefix_caching=False)
    figures["the same without prefix caching, s"] = round(generate(off, shared, 16), 2)
    off.close()
    write("engine_step", figures)


if __name__ == "__main__":
    main()
