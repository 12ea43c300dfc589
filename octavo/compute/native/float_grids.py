"""Float matrices rounded to `Grid`s at load. Owns the two formats; knows no files.

int8   8 bits, symmetric, a scale per 32: 8.5 bits a weight
int4   4 bits, a scale and a minimum per 32: 5 bits a weight
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.compute.native.panels import LANES, PREFETCHED_BYTES, Grid
from octavo.compute.native.structs import Weights
from octavo.core.errors import ModelFileError

GROUP = 32
MOST = 60_000.0  # a minimum must fit 16 bits
_ZERO = 128
_TOP = 15  # the highest code of 4 bits
# Parts of a group's range that the codes may cover: less makes finer steps and cuts the ends.
_SPANS = (1.0, 0.94, 0.88, 0.81, 0.73)
_CHUNK_GROUPS = 4096  # of float32 half a MiB, so that the search stays in a core's cache

Values = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # stored bytes, scales, minima
# Codes [32, groups]; of each group the scale f16, the minimum f16 and the squared error.
Fit = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def round_matrix(matrix: torch.Tensor, kind: str, *, name: str) -> Grid:
    """`matrix` [n, k] of any float dtype as the grid `kind`, "int8" or "int4".

    Raises ModelFileError for a value that is not finite or too large; `name` is the tensor's.
    """
    n, k = matrix.shape
    assert k % GROUP == 0
    groups = matrix.reshape(-1, GROUP)
    rounding = ROUNDINGS[kind]
    stored, scale, minimum = _joined(
        [
            rounding(_checked(groups[begin : begin + _CHUNK_GROUPS], name))
            for begin in range(0, len(groups), _CHUNK_GROUPS)
        ]
    )
    eight = kind == "int8"
    return Grid(
        stored=stored.view(n, k // GROUP, -1),
        scale=scale.view(n, -1),
        minimum=None if eight else minimum.view(n, -1),
        bits=8 if eight else 4,
        group=GROUP,
        zero=_ZERO if eight else 0,
    )


def grid_bytes(n: int, k: int, kind: str) -> int:
    """Bytes of what `round_matrix` and `panels.pack` make of a matrix [n, k], without what is only
    there to be prefetched."""
    eight = kind == "int8"
    values, numbers = LANES * GROUP // (1 if eight else 2), LANES * 2 * (1 if eight else 2)
    return -(-n // LANES) * (k // GROUP) * (values + numbers)


def grid_weights(memory: torch.Tensor, n: int, k: int, kind: str) -> Weights:
    """The struct of such memory, with what is prefetched."""
    assert memory.numel() == grid_bytes(n, k, kind) + PREFETCHED_BYTES
    eight = kind == "int8"
    return Weights(
        data=memory.data_ptr(),
        n=n,
        k=k,
        bits=8 if eight else 4,
        group=GROUP,
        zero=_ZERO if eight else 0,
        minima=0 if eight else 1,
        wide=0,
    )


def _checked(groups: torch.Tensor, name: str) -> torch.Tensor:
    groups = groups.float()
    if not bool(groups.abs().amax() <= MOST):  # a NaN fails too
        raise ModelFileError(
            f"tensor {name} has values that are not finite or beyond {MOST:,.0f}, and cannot be "
            "quantised; leave quantization out",
            param=name,
        )
    return groups


def _joined(chunks: list[Values]) -> Values:
    stored, scale, minimum = (torch.cat(each) for each in zip(*chunks, strict=True))
    return stored, scale, minimum


def _int8(groups: torch.Tensor) -> Values:
    scale = (groups.abs().amax(1, keepdim=True) / 127).half()
    codes = (groups * _inverse(scale)).round_().clamp_(-127, 127)
    return (codes + _ZERO).to(torch.uint8), scale, scale


def _int4(groups: torch.Tensor) -> Values:
    """Of several spans of codes the one of least squared error, counted with rounded numbers.

    The codes of a span give scale and minimum by linear regression of the values on the codes.
    """
    columns = groups.T.contiguous()  # sums over the first dimension are several times faster
    low, high = columns.aminmax(dim=0)
    middle, mean = (low + high) / 2, columns.mean(0)
    best = _fit(columns, torch.zeros_like(columns), mean)
    for span in _SPANS:
        step = (high - low) * (span / _TOP)
        codes = _codes(columns, step, middle - step * (_TOP / 2))
        found = _fit(columns, codes, mean)
        better = found[3] < best[3]
        codes, scale, minimum, error = (
            torch.where(better, new, old) for new, old in zip(found, best, strict=True)
        )
        best = codes, scale, minimum, error
    codes, scale, minimum, _ = best
    halves = codes.T.to(torch.uint8).reshape(-1, 2, GROUP // 2)
    return halves[:, 0] | (halves[:, 1] << 4), scale, minimum


def _fit(columns: torch.Tensor, codes: torch.Tensor, mean: torch.Tensor) -> Fit:
    """From a first guess of the codes [32, groups]; see `Fit`."""
    mean_code = codes.mean(0)
    spread = codes - mean_code
    square = (spread * spread).sum(0)
    slope = (spread * columns).sum(0) / square.clamp_min(1e-9)
    scale = slope.half()
    minimum = (mean - scale.float() * mean_code).half()
    codes = _codes(columns, scale, minimum)
    error = torch.addcmul(minimum.float() - columns, codes, scale.float())
    return codes, scale, minimum, (error * error).sum(0)


def _codes(columns: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor) -> torch.Tensor:
    return ((columns - minimum) * _inverse(scale)).round_().clamp_(0, _TOP)


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    """1 / scale as float32, and 0 of 0: a group of equal values has no steps."""
    scale = scale.float()
    return torch.where(scale > 0, 1 / scale, 0.0)


ROUNDINGS: dict[str, Callable[[torch.Tensor], Values]] = {"int8": _int8, "int4": _int4}
