"""The machine that measured: what a reader needs to judge figures by."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

VECTOR_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def machine() -> dict[str, Any]:
    """CPU and its vector instructions, cores that this process may use, Python and system."""
    model, has = platform.processor() or platform.machine(), list[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
        flags = next(line.split(":", 1)[1].split() for line in lines if line.startswith("flags"))
        has = [name for name in VECTOR_FLAGS if name in flags]
    except (OSError, StopIteration):
        pass
    return {
        "cpu": model,
        "vectors": has,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "system": platform.system(),
    }
