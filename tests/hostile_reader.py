"""Run by `test_hostile_files` in a process of its own: mutate a model file and read it, many times.

Arguments: the file, how many cases, a seed, how many of its first bytes to mutate. Memory is
limited to MEMORY_BYTES more than the imports took. Any exception but ModelFileError ends the
process, and so does a case of more than CASE_SECONDS of CPU time. Prints how many cases were read
and how many refused.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from pathlib import Path

from octavo.compute.weights import open_source
from octavo.core.errors import ModelFileError
from octavo.core.gguf_header import read_header
from octavo.engine.gguf_tokenizer import from_metadata

MEMORY_BYTES = 1 << 30
CASE_SECONDS = 5.0
EXTREMES = (
    0,
    1,
    0x7F,
    0xFF,
    1 << 15,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)


def mutated(original: bytes, drawn: random.Random, reach: int) -> bytes:
    """One to four changes of the kinds that readers trip over."""
    data = bytearray(original)
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(min(reach, len(data)))
        match drawn.randrange(6):
            case 0:
                data[at] = drawn.randrange(256)
            case 1:
                data[at] ^= 1 << drawn.randrange(8)
            case 2:
                width = drawn.choice((4, 8))
                number = drawn.choice(EXTREMES) % (1 << 8 * width)
                data[at : at + width] = number.to_bytes(width, "little")
            case 3:
                del data[at : at + drawn.randint(1, 40)]
            case 4:
                data[at:at] = data[at : at + drawn.randint(1, 40)]
            case _:
                other = drawn.randrange(min(reach, len(data)))
                data[at : at + 8] = data[other : other + 8]
    if drawn.random() < 0.1:
        del data[drawn.randrange(len(data)) :]
    return bytes(data) or b"\0"


def read_all(path: Path) -> None:
    """All that a start reads: header, config, names, weights, tokenizer."""
    source = open_source(path if path.suffix == ".gguf" else path.parent)
    if source.total_bytes() < MEMORY_BYTES // 16:
        for _ in source.tensors():
            pass
    if path.suffix == ".gguf":
        metadata = read_header(path).metadata
        if "tokenizer.ggml.token_type" in metadata:
            from_metadata(metadata)


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    ceiling = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def main() -> None:
    path, cases, seed, reach = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    read_all(path)  # the file itself is good; also loads what is imported late
    with path.open("rb") as file:
        file_bytes = file.seek(0, 2)
        file.seek(0)
        original = file.read(min(file_bytes, max(reach, 1 << 20)))
    limit_memory()
    drawn = random.Random(seed)
    read = refused = 0
    for case in range(cases):
        data = mutated(original, drawn, reach)
        with path.open("r+b") as file:
            file.write(data)
            file.truncate(
                len(data) if drawn.random() < 0.1 else len(data) + file_bytes - len(original)
            )
        started = time.process_time()
        try:
            read_all(path)
            read += 1
        except ModelFileError as error:
            refused += 1
            if len(str(error)) > 2000:
                raise SystemExit(f"case {case} of seed {seed} has an endless message") from None
        spent = time.process_time() - started
        if spent > CASE_SECONDS:
            raise SystemExit(f"case {case} of seed {seed} took {spent:.1f} s")
    print(read, refused)


if __name__ == "__main__":
    main()
