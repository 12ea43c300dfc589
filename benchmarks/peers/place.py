"""Where the peers live: their environments and the default model in each one's form."""

from __future__ import annotations

import os
import sys
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
OURS = ""  # the environment that runs this


def root() -> Path:
    """`$OCTAVO_PEERS`, by default a folder in the home directory; never in the repository."""
    return Path(os.environ.get("OCTAVO_PEERS") or Path.home() / "octavo-peers")


def python(environment: str) -> Path:
    return root() / environment / "bin" / "python" if environment else Path(sys.executable)


def model(name: str) -> Path:
    return root() / "models" / name
