"""The kernels under the compiler's sanitizers: a short part of `make sanitize`, and its canaries.

Left out here are the sources that take minutes to compile so; `make sanitize` has them all.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.compute.native import sanitized

HEAVY = tuple(
    f"{name}.cpp"
    for name in ("attention", "attention_merge", "choose", "gate", "linear", "rope_write")
)
TIMEOUT_SECONDS = 600
pytestmark = pytest.mark.timeout(2 * TIMEOUT_SECONDS)  # the first one compiles
SHORT = {
    "address": ("tests/compute/native/test_float_products.py", "tests/compute/native/test_pool.py"),
    "thread": ("tests/compute/native/test_pool.py",),
}
CANARIES = {"address": ("overrun", "heap-buffer-overflow"), "thread": ("race", "data race")}
KINDS = list(sanitized.RUNTIMES)


@cache
def folder(kind: str) -> Path:
    return sanitized.build(kind, only=("scalar",), without=HEAVY)


def run(kind: str, module: str, *arguments: str) -> tuple[int, str]:
    try:
        done = sanitized.run(
            kind, folder(kind), module, *arguments, timeout_seconds=TIMEOUT_SECONDS
        )
    except sanitized.NoSanitizer as error:
        pytest.skip(str(error))
    return done.returncode, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_the_kernels(kind: str) -> None:
    code, output = run(kind, "pytest", "-s", "-p", "no:cacheprovider", *SHORT[kind])
    assert code == 0, output[-4000:]
    assert "passed" in output


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_made_on_purpose_is_found(kind: str) -> None:
    mistake, report = CANARIES[kind]
    code, output = run(kind, "tests.compute.native.canaries", mistake)
    assert code != 0
    assert report in output
