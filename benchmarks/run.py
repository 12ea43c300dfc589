"""All benchmarks, one after another: `make bench`."""

from __future__ import annotations

import importlib

NAMES = ("scheduler_step", "flat_vs_trie", "engine_step", "start", "server_load", "usage_logs")


def main() -> None:
    for name in NAMES:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
