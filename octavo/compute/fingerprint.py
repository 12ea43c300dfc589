"""The identity of weights as SHA-256. Owns what is hashed; knows no formats.

Up to WHOLE_BYTES of files every byte counts. Above that hashing would take longer than a start
should: every header and every small tensor counts in full, a large one by SAMPLES spread pages.
What that can miss: weights of equal geometry that differ only between the sampled pages, in a few
rows of a large tensor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from octavo.core.errors import ModelFileError
from octavo.core.model_config import ModelConfig

WHOLE_BYTES = 4 << 30
PIECE_BYTES = 8 << 20
PAGE_BYTES = 4096
SAMPLES = 16
_THREADS = 4


@dataclass(frozen=True, slots=True)
class HashedFile:
    """One weight file: its header ends at `header_bytes`, its tensors are (offset, bytes) spans."""

    path: Path
    header_bytes: int
    file_bytes: int
    tensors: tuple[tuple[int, int], ...]


def fingerprint(
    config: ModelConfig, files: Sequence[HashedFile], *, whole_bytes: int = WHOLE_BYTES
) -> bytes:
    """SHA-256 over the config and the files' contents, in their order; file names do not count.

    Files of more than `whole_bytes` together are sampled.
    """
    sampled = sum(file.file_bytes for file in files) > whole_bytes
    digest = hashlib.sha256(b"octavo-weights-1 sampled" if sampled else b"octavo-weights-1 whole")
    digest.update(hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode()).digest())
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing and reading both release the GIL
        for file in files:
            spans = list(_sampled_spans(file) if sampled else _pieces(0, file.file_bytes))
            width = 64 if sampled else 1  # a task worth its hand-over
            groups = [spans[i : i + width] for i in range(0, len(spans), width)]
            digest.update(file.file_bytes.to_bytes(8, "little"))
            digest.update(len(spans).to_bytes(8, "little"))
            for part in pool.map(partial(_hash, file.path), groups):
                digest.update(part)
    return digest.digest()


def _hash(path: Path, spans: Sequence[tuple[int, int]]) -> bytes:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as handle:
            for offset, n_bytes in spans:
                handle.seek(offset)
                piece = handle.read(n_bytes)
                if len(piece) != n_bytes:
                    raise ModelFileError(f"{path.name}: the file became shorter while read")
                digest.update(piece)
    except OSError as error:
        raise ModelFileError(f"{path.name}: cannot be read: {error.strerror}") from error
    return digest.digest()


def _pieces(offset: int, n_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(offset, offset + n_bytes, PIECE_BYTES):
        yield start, min(PIECE_BYTES, offset + n_bytes - start)


def _sampled_spans(file: HashedFile) -> Iterator[tuple[int, int]]:
    yield from _pieces(0, file.header_bytes)
    for offset, n_bytes in file.tensors:
        if n_bytes <= SAMPLES * PAGE_BYTES:
            yield offset, n_bytes
            continue
        last = n_bytes - PAGE_BYTES
        for i in range(SAMPLES):
            yield offset + last * i // (SAMPLES - 1), PAGE_BYTES
