"""Another quantisation of a GGUF file, by llama.cpp: `... requantise SOURCE KIND TARGET`."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import llama_cpp as api

KINDS = {
    "Q4_0": api.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q5_0": api.LLAMA_FTYPE_MOSTLY_Q5_0,
    "Q5_1": api.LLAMA_FTYPE_MOSTLY_Q5_1,
    "Q8_0": api.LLAMA_FTYPE_MOSTLY_Q8_0,
    "F16": api.LLAMA_FTYPE_MOSTLY_F16,
}


def main() -> None:
    source, kind, target = sys.argv[1:]
    options = api.llama_model_quantize_default_params()
    options.ftype = KINDS[kind]
    options.allow_requantize = True
    options.nthread = len(os.sched_getaffinity(0))
    part = f"{target}.part"
    status = api.llama_model_quantize(source.encode(), part.encode(), ctypes.byref(options))
    if status:
        raise SystemExit(f"llama.cpp could not requantise to {kind}: status {status}")
    Path(part).rename(target)


if __name__ == "__main__":
    main()
