"""Which number format to compute in. Owns the names; knows no model."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from octavo.core.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def dtype_name(dtype: torch.dtype) -> str:
    """The name that configuration and `core.spec` use for a torch dtype."""
    return str(dtype).removeprefix("torch.")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where `device` computes it natively, else float32.

    Raises ConfigError for a name that is not known or that the device cannot compute well.
    """
    if name == "auto":
        return torch.bfloat16 if _native_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise ConfigError(
            f"dtype must be one of auto, {', '.join(DTYPES)}; got {name[:40]!r}", param="dtype"
        )
    if name == "float16" and device.type == "cpu":
        raise ConfigError(
            "dtype float16 is not supported on the CPU; use float32 or bfloat16", param="dtype"
        )
    return DTYPES[name]


def _native_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    if platform.machine().lower() in ("arm64", "aarch64"):
        return _arm_bfloat16()
    # Private probes that come and go between torch releases: a missing one counts as "no".
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(probe() for name in names if (probe := getattr(torch.cpu, name, None)) is not None)


def _arm_bfloat16() -> bool:
    """The kernel lists `bf16` among the CPU's features (Linux only; elsewhere no)."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    features = (line.partition(":")[2].split() for line in text.splitlines() if "Features" in line)
    return any("bf16" in words for words in features)
