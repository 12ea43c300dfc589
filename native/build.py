"""Compiles the kernels into octavo/_native, once per instruction set. Standard library only.

Each instruction set is a library of its own, so that no function compiled for one machine can be
linked into the code for another. What is up to date is left alone. With `--sanitize` the builds are
watched by the compiler's sanitizers and go to build/: see tests/compute/native/sanitized.py.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
TARGET = SOURCES.parent / "octavo" / "_native"
# -ffp-contract=off: a product and a sum are fused where the source says so and nowhere else.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=default",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-uninitialized",  # gcc 12 warns of its own vector header
    "-Wno-maybe-uninitialized",
)
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
ISA_FLAGS = {"scalar": (), "avx2": _AVX2, "avx512": (*_AVX2, *_AVX512)}
CPU_SOURCE = "cpu.cpp"
# What nobody may do: read past an end, lean on undefined behaviour; write where another thread is.
SANITIZED_ISAS = ("scalar", "avx2")
_SANITIZED = ("-O1", "-g1", "-fno-omit-frame-pointer")
SANITIZERS = {
    "address": (*_SANITIZED, "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    # A copy that the compiler expands itself is one that nobody watches.
    "thread": (*_SANITIZED, "-fsanitize=thread", "-fno-builtin-memcpy"),
}


class NoCompiler(Exception):
    """The kernels cannot be built here; the text says why."""


def build(
    target: Path = TARGET,
    *,
    extra_flags: tuple[str, ...] = (),
    only: tuple[str, ...] = tuple(ISA_FLAGS),
    without: tuple[str, ...] = (),
) -> list[Path]:
    """Build what is missing or older than its sources; returns the libraries that are there.

    `only` these instruction sets, of those that this machine's kind has, `without` these sources.
    Raises NoCompiler with the reason if there is no compiler or it refuses the code.
    """
    compiler = _compiler()
    target.mkdir(parents=True, exist_ok=True)
    wanted = {
        "cpu": (extra_flags, [SOURCES / CPU_SOURCE]),
        **{
            isa: ((*flags, *extra_flags), _kernels(without))
            for isa, flags in _isas().items()
            if isa in only
        },
    }
    built = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (flags, sources) in wanted.items():
            library = target / f"{name}.so"
            stamp = target / f"{name}.stamp"
            digest = _digest(compiler, flags, sources)
            fresh = library.is_file() and stamp.is_file() and stamp.read_text() == digest
            if not fresh:
                made = Path(folder) / library.name
                _compile(compiler, flags, sources, made=made, folder=Path(folder))
                os.replace(shutil.move(made, target / f".{name}.new"), library)
                stamp.write_text(digest)
            built.append(library)
    return built


def build_sanitized(
    kind: str, *, only: tuple[str, ...] = SANITIZED_ISAS, without: tuple[str, ...] = ()
) -> Path:
    """The folder with libraries under the sanitizer `kind`; see `build`. Raises NoCompiler."""
    name = f"sanitize-{kind}{'-some' if without else ''}"
    target = SOURCES.parent / "build" / name
    build(target, extra_flags=SANITIZERS[kind], only=only, without=without)
    return target


def _isas() -> dict[str, tuple[str, ...]]:
    intel = platform.machine().lower() in ("x86_64", "amd64")
    return ISA_FLAGS if intel else {"scalar": ()}


def _kernels(without: tuple[str, ...]) -> list[Path]:
    left_out = {CPU_SOURCE, *without}
    return sorted(path for path in SOURCES.glob("*.cpp") if path.name not in left_out)


def _compiler() -> str:
    if sys.platform == "win32":
        raise NoCompiler("the kernels are not built on Windows")
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NoCompiler("no C++ compiler (c++, g++ or clang++) was found")


def _digest(compiler: str, flags: tuple[str, ...], sources: list[Path]) -> str:
    parts = [compiler, *FLAGS, *flags]
    files = [*sources, *sorted(SOURCES.glob("*.h"))]
    text = "\n".join(parts).encode() + b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(text).hexdigest()


def _compile(
    compiler: str, flags: tuple[str, ...], sources: list[Path], *, made: Path, folder: Path
) -> None:
    def object_of(source: Path) -> Path:
        made_object = folder / f"{made.stem}-{source.stem}.o"
        _run([compiler, *FLAGS, *flags, "-c", str(source), "-o", str(made_object)])
        return made_object

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(object_of, sources))
    _run([compiler, "-shared", "-pthread", *flags, *map(str, objects), "-o", str(made)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)


def _main() -> None:
    parser = argparse.ArgumentParser(description="Compile the kernels.")
    parser.add_argument("--sanitize", choices=SANITIZERS, help="into build/, watched by these")
    kind = parser.parse_args().sanitize
    try:
        if kind is not None:
            print(build_sanitized(kind))
            return
        for path in build():
            print(path.name)
    except NoCompiler as error:
        if kind is not None:
            sys.exit(f"no sanitizer: {error}")
        print(f"Octavo will run on plain torch: {error}", file=sys.stderr)


if __name__ == "__main__":
    _main()
