"""Philox4x32-10, a counter-based random generator: a number is a function of its key and counter.

No state, so a row's numbers do not depend on what else is in the batch or on how often it ran.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MASK_64 = (1 << 64) - 1


def philox4x32(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Ten rounds over uint64 arrays of 32-bit words: counter [n, 4], key [n, 2] -> words [n, 4]."""
    c0, c1, c2, c3 = counter.T
    k0, k1 = key.T
    for _ in range(10):
        wide0, wide1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (wide1 >> _SHIFT) ^ c1 ^ k0,
            wide1 & _LOW,
            (wide0 >> _SHIFT) ^ c3 ^ k1,
            wide0 & _LOW,
        )
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _LOW, (k1 + np.uint64(_WEYL[1])) & _LOW
    return np.stack((c0, c1, c2, c3), axis=1)


def uniforms(draws: list[tuple[int, int, int]]) -> np.ndarray:
    """One float64 in [0, 1) for each (seed, choice, position), with 53 random bits.

    The seed counts modulo 2**64.
    """
    counter = np.array(
        [(p & 0xFFFFFFFF, p >> 32, choice, 0) for _, choice, p in draws], dtype=np.uint64
    )
    seeds = np.array([seed & _MASK_64 for seed, _, _ in draws], dtype=np.uint64)
    words = philox4x32(counter, np.stack((seeds & _LOW, seeds >> _SHIFT), axis=1))
    bits = (words[:, 0] << np.uint64(21)) | (words[:, 1] >> np.uint64(11))
    return bits.astype(np.float64) * 2.0**-53
