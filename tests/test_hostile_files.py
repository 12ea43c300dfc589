"""Damaged and hostile model files: only ModelFileError, under limits of memory and time.

Each test reads mutations of one good file in a process of its own, so that a crash of a library
that is not written in Python shows as well. The in-process fuzzers of the two headers are in
`core/test_gguf_header.py` and `compute/test_safetensors_source.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.core.gguf_header import read_header
from tests.checkpoints import tiny_llama, write_gguf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
ROOT = Path(__file__).parents[1]


def fuzz(path: Path, *, cases: int, seed: int, reach: int) -> tuple[int, int]:
    """Cases read and refused. Fails with the end of the process's output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile_reader", *map(str, (path, cases, seed, reach))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    read, refused = map(int, done.stdout.split())
    assert read + refused == cases
    return read, refused


def test_mutated_gguf_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny_llama(tmp_path / "hf", num_hidden_layers=1), quant="Q8_0")
    _, refused = fuzz(path, cases=400, seed=1, reach=read_header(path).data_offset)
    assert refused > 100


def test_mutated_header_of_the_default_model(tmp_path: Path, default_gguf: Path) -> None:
    """Its real vocabulary and merges, before data that is a hole of the right size."""
    header = read_header(default_gguf)
    path = tmp_path / "m.gguf"
    with default_gguf.open("rb") as source, path.open("wb") as file:
        file.write(source.read(header.data_offset))
        file.truncate(header.file_bytes)
    _, refused = fuzz(path, cases=24, seed=2, reach=header.data_offset)
    assert refused > 0


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_mutated_checkpoint_folder(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "hf"
    tiny_llama(folder, num_hidden_layers=1)
    for extra in folder.iterdir():
        if extra.name not in ("model.safetensors", "config.json"):
            shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
    path = folder / file
    reach = path.stat().st_size if file == "config.json" else 2000
    _, refused = fuzz(path, cases=400, seed=3, reach=reach)
    assert refused > 100
