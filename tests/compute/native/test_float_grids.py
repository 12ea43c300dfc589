"""Float matrices rounded at load: how far from their values, and what is refused."""

from __future__ import annotations

import pytest
import torch

from octavo.compute.native.float_grids import GROUP, round_matrix
from octavo.compute.native.panels import Grid
from octavo.core.errors import ModelFileError


def values(grid: Grid) -> torch.Tensor:
    """float32 [n, k] of a grid, by its definition."""
    codes = grid.stored
    if grid.bits == 4:
        codes = torch.cat((codes & 15, codes >> 4), dim=-1)
    found = grid.scale.float()[..., None] * (codes.float() - grid.zero)
    if grid.minimum is not None:
        found = found + grid.minimum.float()[..., None]
    return found.view(len(codes), -1)


def random_matrix(n: int, k: int, *, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return 0.05 * torch.randn(n, k)


def test_int8_is_within_half_a_step_of_every_value() -> None:
    matrix = random_matrix(300, 1024)  # more groups than are rounded at a time
    grid = round_matrix(matrix, "int8", name="w")
    step = matrix.view(300, -1, GROUP).abs().amax(-1, keepdim=True) / 127
    error = (values(grid) - matrix).view(300, -1, GROUP).abs()
    assert grid.zero == 128
    assert bool((error <= 0.57 * step).all())  # a scale of 11 bits adds up to 127 · 2^-12 steps


def test_int4_has_less_error_than_steps_from_lowest_to_highest() -> None:
    matrix = random_matrix(300, 1024)
    grid = round_matrix(matrix, "int4", name="w")
    groups = matrix.view(300, -1, GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 15
    plain = ((groups - low) / step).round() * step + low - groups
    error = (values(grid) - matrix).view(300, -1, GROUP)
    assert int(grid.stored.max()) <= 255
    assert float(error.square().sum()) < 0.9 * float(plain.square().sum())
    # No group is worse than by the rounding of its scale and minimum.
    assert bool((error.square().sum(-1) <= 1.02 * plain.square().sum(-1) + 1e-7).all())


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_zeros_equal_values_and_one_outlier_are_kept(kind: str) -> None:
    matrix = torch.zeros(3, 64)
    matrix[1] = -0.75
    matrix[2, 40] = 1000.0
    found = values(round_matrix(matrix, kind, name="w"))
    assert not bool(found[0].any())
    assert bool(((found[1] + 0.75).abs() < 4e-3).all())
    assert abs(float(found[2, 40]) - 1000.0) < 1.0
    assert float(found[2].abs().sum()) - abs(float(found[2, 40])) < 1.0


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_stored_dtype_does_not_matter(kind: str, dtype: torch.dtype) -> None:
    matrix = random_matrix(48, 96).to(dtype)
    found, wanted = (round_matrix(each, kind, name="w") for each in (matrix, matrix.float()))
    assert torch.equal(values(found), values(wanted))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e6])
def test_what_cannot_be_rounded_is_refused_by_name(kind: str, bad: float) -> None:
    matrix = random_matrix(4, 64)
    matrix[2, 33] = bad
    with pytest.raises(ModelFileError, match=r"tensor model\.norm has values"):
        round_matrix(matrix, kind, name="model.norm")
