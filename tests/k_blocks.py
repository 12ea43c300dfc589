"""Random blocks of the K types, which the gguf package reads but does not write.

Their values have mean 0 and a given deviation, so that a model of them has numbers of usual size.
"""

from __future__ import annotations

import numpy as np

K_TYPES = ("Q4_K", "Q5_K", "Q6_K")
BLOCK = 256


def k_blocks(shape: tuple[int, int], kind: str, *, deviation: float) -> np.ndarray:
    """uint8 [rows, bytes] of a matrix of that shape; its columns are a multiple of 256."""
    rows, columns = shape
    random = np.random.default_rng(rows * 1_000_003 + columns)
    n = rows * columns // BLOCK
    blocks = (
        _six(random, n, deviation) if kind == "Q6_K" else _four_or_five(random, n, kind, deviation)
    )
    return np.ascontiguousarray(blocks.reshape(rows, -1))


def _four_or_five(random: np.random.Generator, n: int, kind: str, deviation: float) -> np.ndarray:
    """d, dmin, then scales and minimums of 6 bits, equal here, then the numbers.

    A value is scale · (d·number - dmin), so dmin is d times the middle of the numbers.
    """
    bits = int(kind[1])
    middle = (2**bits - 1) / 2
    d = deviation / (38.0 * np.sqrt((4**bits - 1) / 12))  # 38: the scales' root mean square
    halves = np.tile(np.array([d, d * middle], dtype=np.float16).view(np.uint8), (n, 1))
    first = random.integers(0, 256, (n, 4), np.uint8)
    nibbles = random.integers(0, 16, (n, 4), np.uint8)
    numbers = random.integers(0, 256, (n, 128 + (32 if kind == "Q5_K" else 0)), np.uint8)
    return np.concatenate([halves, first, first, nibbles * 17, numbers], axis=1)


def _six(random: np.random.Generator, n: int, deviation: float) -> np.ndarray:
    """The numbers, their scales of 8 bits with a sign, then d."""
    numbers = random.integers(0, 256, (n, 192), np.uint8)
    scales = random.integers(0, 256, (n, 16), np.uint8)
    d = deviation / (74.0 * np.sqrt((4**6 - 1) / 12))  # 74: the scales' root mean square
    last = np.tile(np.array([d], dtype=np.float16).view(np.uint8), (n, 1))
    return np.concatenate([numbers, scales, last], axis=1)
