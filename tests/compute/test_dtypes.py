"""Which dtype `auto` means, and which names are refused."""

from __future__ import annotations

import pytest
import torch

from octavo.compute.dtypes import resolve_dtype
from octavo.core.errors import ConfigError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("avx512", "amx", "wanted"),
    [
        (False, False, torch.float32),
        (True, False, torch.bfloat16),
        (False, True, torch.bfloat16),
        (None, None, torch.float32),
    ],
)
def test_auto_follows_the_cpu(
    avx512: bool | None, amx: bool | None, wanted: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    probes = {"_is_avx512_bf16_supported": avx512, "_is_amx_tile_supported": amx}
    for name, answer in probes.items():
        if answer is None:  # a torch without this probe
            monkeypatch.delattr(torch.cpu, name, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda a=answer: a, raising=False)
    assert resolve_dtype("auto", CPU) is wanted


def test_names() -> None:
    assert resolve_dtype("float32", CPU) is torch.float32
    assert resolve_dtype("bfloat16", CPU) is torch.bfloat16
    assert resolve_dtype("float16", torch.device("cuda")) is torch.float16
    with pytest.raises(ConfigError, match="float16 is not supported on the CPU"):
        resolve_dtype("float16", CPU)
    with pytest.raises(ConfigError, match="dtype must be one of auto, float32"):
        resolve_dtype("int8", CPU)
