"""What an import may drag in, in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import sys
before = set(sys.modules)
import {module}
outside = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(outside - set(sys.stdlib_module_names) - {{"octavo"}}))
"""


def _loaded(module: str) -> str:
    code = PROBE.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_core_loads_nothing_beyond_the_standard_library() -> None:
    assert _loaded("octavo.core") == "[]"
    assert _loaded("octavo.core.config, octavo.core.gguf_header, octavo.core.hf_config") == "[]"


def test_the_package_loads_nothing_until_a_name_is_used() -> None:
    assert _loaded("octavo") == "[]"


def test_public_names_resolve() -> None:
    import octavo

    assert all(getattr(octavo, name).__name__ == name for name in octavo.__all__)
