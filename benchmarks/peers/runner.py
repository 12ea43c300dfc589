"""One engine's turn: `python -m benchmarks.peers.runner ADAPTER MODEL THREADS ROUND`.

Runs in that engine's environment, where nothing else of this project is installed. Prints one JSON
object a line; the first is printed as soon as the engine has given a token.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys

from benchmarks.peers.case import CASES, LOW_ID, Case
from benchmarks.peers.engine import Engine
from benchmarks.peers.timing import Timing

WARM_UPS = ((1, 1024, 2), (8, 16, 4), (32, 16, 4))  # requests, prompt tokens, out tokens


def tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def figure(case: Case, timing: Timing) -> float:
    if case.figure == "prefill":
        return timing.prefill_rate(case.prompt_tokens)
    if case.figure == "decode":
        return timing.decode_rate(case.out_tokens)
    return timing.seconds


def prompts_of(case: Case, seed: str, engine: Engine) -> list[list[int]]:
    """The prompts of a load, after their common prefix has been put into the engine's cache."""
    prompts = case.prompts(seed)
    if case.common_tokens:
        common = prompts[0][: case.common_tokens]
        engine.generate([[*common, *([LOW_ID] * 64)]], 1)
    return prompts


def main() -> None:
    adapter, model, threads, turn = sys.argv[1:]
    module = importlib.import_module(f"benchmarks.peers.{adapter}")
    engine: Engine = module.load(model, threads=int(threads))
    engine.generate([list(range(LOW_ID, LOW_ID + 16))], 1)
    tell(first_token=engine.version())
    for n, prompt_tokens, out_tokens in WARM_UPS:
        warm_up = Case(
            name="warm-up",
            title="",
            figure="",
            n_requests=n,
            prompt_tokens=prompt_tokens,
            out_tokens=out_tokens,
        )
        engine.generate(warm_up.prompts(turn), out_tokens)
    for case in CASES:
        for repeat in range(case.repeats):
            prompts = prompts_of(case, f"{turn} {repeat}", engine)
            timing = engine.generate(prompts, case.out_tokens)
            tell(case=case.name, value=round(figure(case, timing), 3))
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tell(case="peak_memory", value=round(peak_bytes / 2**30, 3))


if __name__ == "__main__":
    main()
