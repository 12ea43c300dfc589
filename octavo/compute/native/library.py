"""The compiled kernels: which build this machine can run, and its functions.

Loading is start-up work; nothing is loaded at import. A build is chosen by what the processor and
the system allow; OCTAVO_ISA forces one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from octavo.compute.native.structs import KVPool, Op, Step
from octavo.core.errors import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "_native"
ISAS = ("scalar", "avx2", "avx512")  # by what `octavo_best_isa` returns
FORCE = "OCTAVO_ISA"


class NotBuilt(Exception):
    """There are no kernels to load; the text says why."""


@dataclass(frozen=True, slots=True)
class Library:
    """One build of the kernels, loaded."""

    isa: str
    handle: ctypes.CDLL

    def address(self, op: str) -> int:
        """Of the function that runs the op of that name."""
        address = ctypes.cast(getattr(self.handle, f"op_{op}"), ctypes.c_void_p).value
        assert address is not None
        return address


@cache
def usable_isas() -> tuple[str, ...]:
    """Builds that are there and run on this machine, the best last. Raises NotBuilt."""
    probe = FOLDER / "cpu.so"
    if not probe.is_file():
        raise NotBuilt("the kernels were not built: no C++ compiler was found at installation")
    best = ctypes.CDLL(str(probe)).octavo_best_isa()
    return tuple(isa for isa in ISAS[: best + 1] if (FOLDER / f"{isa}.so").is_file())


def load(isa: str | None = None) -> Library:
    """The build for `isa`; by default that named by OCTAVO_ISA, else the best.

    Raises NotBuilt, or ConfigError for one that is unknown or that this machine cannot run.
    """
    usable = usable_isas()
    wanted = isa or os.environ.get(FORCE) or usable[-1]
    if wanted not in usable:
        raise ConfigError(
            f"{FORCE} must be one of {', '.join(usable)} on this machine; got {wanted[:40]!a}",
            param=FORCE,
        )
    return _load(wanted)


@cache
def _load(isa: str) -> Library:
    handle = ctypes.CDLL(str(FOLDER / f"{isa}.so"))
    handle.octavo_isa.restype = ctypes.c_char_p
    assert handle.octavo_isa().decode() == isa  # the file is what its name says
    handle.octavo_pool_create.restype = ctypes.c_void_p
    handle.octavo_pool_create.argtypes = (ctypes.c_int32,)
    handle.octavo_pool_destroy.argtypes = (ctypes.c_void_p,)
    handle.octavo_run.argtypes = (
        ctypes.c_void_p,
        ctypes.POINTER(Op),
        ctypes.c_int64,
        ctypes.POINTER(Step),
    )
    pool, number = ctypes.POINTER(KVPool), ctypes.c_int64
    handle.octavo_kv_slab_bytes.restype = number
    handle.octavo_kv_slab_bytes.argtypes = (ctypes.c_int32, number, number)
    handle.octavo_kv_copy.argtypes = (pool, number, number, number, number)
    handle.octavo_kv_zero.argtypes = (pool, number)
    handle.octavo_ceiling_vectors.restype = number
    handle.octavo_kv_read.argtypes = (pool, number, number, number, ctypes.c_void_p)
    return Library(isa, handle)


class Workers:
    """A pool of `count` threads, the caller's among them. One caller at a time."""

    def __init__(self, library: Library, count: int) -> None:
        self.library = library
        self.count = count
        self._run = library.handle.octavo_run
        self._pool = library.handle.octavo_pool_create(count)
        if not self._pool:
            raise ConfigError(f"{count} threads cannot be started; lower threads", param="threads")

    def run(self, program: Program, step: Step) -> None:
        """All ops in order; releases the interpreter's lock meanwhile."""
        self._run(self._pool, program.ops, program.count, ctypes.byref(step))

    def close(self) -> None:
        """End the threads. Calling it again does nothing."""
        if self._pool:
            self.library.handle.octavo_pool_destroy(self._pool)
            self._pool = None

    def __del__(self) -> None:
        self.close()


class Program:
    """Ops recorded once, run once per step. Keeps their arguments alive, and with `keep` the memory
    that these point to."""

    def __init__(
        self,
        library: Library,
        ops: Sequence[tuple[str, ctypes.Structure]],
        *,
        keep: object = None,
    ) -> None:
        self._keep = keep
        self._arguments = [arguments for _, arguments in ops]
        self.count = len(ops)
        self.ops = (Op * len(ops))(
            *(Op(library.address(name), ctypes.addressof(arguments)) for name, arguments in ops)
        )
