"""Runs Python on kernels that the compiler's sanitizers watch, in a process of its own.

Owns how such a process is started; what runs in it are the same tests as everywhere.

    python -m tests.compute.native.sanitized address|thread [pytest arguments]
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
# Python and torch free what they allocated in their own ways, and leave some of it.
SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
}
WHOLE = (
    *("tests/compute/native", "tests/engine/test_native.py"),
    "--ignore=tests/compute/native/test_sanitizers.py",  # which would do this again
)


class NoSanitizer(Exception):
    """This machine cannot do it; the text says why."""


def build(kind: str, *, without: tuple[str, ...] = (), only: tuple[str, ...] | None = None) -> Path:
    """The folder of the libraries under the sanitizer `kind`, which are built if need be."""
    native = runpy.run_path(str(ROOT / "native" / "build.py"))
    narrowed = {} if only is None else {"only": only}
    try:
        folder: Path = native["build_sanitized"](kind, without=without, **narrowed)
    except native["NoCompiler"] as error:
        raise NoSanitizer(str(error)) from None
    return folder


def environment(kind: str) -> dict[str, str]:
    """Of a process that may load such a library: its runtime has to come before everything, and
    the C++ library right after it, or an exception of torch's finds nobody who knows it."""
    runtime, plus = (_library(name) for name in (RUNTIMES[kind], "libstdc++.so.6"))
    return {**os.environ, **SETTINGS, "LD_PRELOAD": f"{runtime} {plus}", "PYTHONPATH": str(ROOT)}


def _library(name: str) -> str:
    """Where the compiler keeps it."""
    compiler = os.environ.get("CXX", "c++")
    asked = [compiler, f"-print-file-name={name}"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoSanitizer(f"{compiler} does not say where {name} is: {error}") from None
    if not Path(found).is_file():
        raise NoSanitizer(f"{compiler} comes without {name}")
    return found


def run(
    kind: str, folder: Path, module: str, *arguments: str, timeout_seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments` on the libraries of `folder`; its output is kept."""
    command = [sys.executable, "-m", __spec__.name, str(folder), module, *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(kind),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    if "unexpected memory mapping" in done.stdout:
        raise NoSanitizer("the system lays memory out in a way that this runtime does not know")
    return done


def _inside(folder: Path, module: str, arguments: list[str]) -> None:
    """In the watched process: use the libraries of `folder`, then be `module`."""
    from octavo.compute.native import library

    library.FOLDER = folder
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=False)


def _main() -> None:
    first, *rest = sys.argv[1:]
    if first not in RUNTIMES:
        _inside(Path(first), rest[0], rest[1:])
        return
    try:
        # A report goes to standard error as the process ends: nothing may hold that back.
        command = ["-s", "-p", "no:cacheprovider", *(rest or WHOLE)]
        done = run(first, build(first), "pytest", *command)
    except NoSanitizer as error:
        sys.exit(f"not checked with the sanitizer {first}: {error}")
    print(done.stdout)
    sys.exit(done.returncode)


if __name__ == "__main__":
    _main()
