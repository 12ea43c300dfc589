"""Kernels measured one by one: what is told of each, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.bench import kernels as module
from octavo.bench.ceilings import READ_BYTES, Ceilings
from octavo.bench.kernels import KernelSettings, kernels
from octavo.bench.ops.cases import CASES
from octavo.compute.native.library import NotBuilt, Workers, load, usable_isas
from octavo.core.errors import ConfigError

SMALL = KernelSettings(
    formats=("Q4_1", "BF16", "int8"),
    rows=(1, 3),
    hidden_size=256,
    intermediate_size=256,
    context=20,
    threads=1,
    min_seconds=0.0,
)

try:
    usable_isas()
except NotBuilt:
    pytest.skip("the kernels were not built: no C++ compiler", allow_module_level=True)


def test_every_op_is_told_with_its_share_of_a_ceiling() -> None:
    result = kernels(SMALL)
    ops = result.figures["ops"]
    # Three ops of weights in two formats, two of K and V in one, two of neither.
    assert len(ops) == 2 * (3 * 2 + 2 + 2)
    for figures in ops.values():
        assert figures["seconds"] > 0
        assert figures["share_of_ceiling"] > 0
        assert figures["ceiling"] in ("bandwidth", "arithmetic")
    one, three = (ops[f"linear Q4_1, {n} rows"] for n in (1, 3))
    assert (one["flops"], three["flops"]) == (2 * 256 * 256, 3 * 2 * 256 * 256)
    assert one["bytes_per_second"] == pytest.approx(one["bytes"] / one["seconds"])
    ceilings, table = result.tables
    assert len(table.rows) == len(ops)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert ceilings.rows


def test_every_kind_of_arithmetic_has_a_ceiling() -> None:
    workers = Workers(load(), 1)
    ceilings = Ceilings(workers, min_seconds=0.0)
    rates = {case.arithmetic: ceilings.rate(case.arithmetic) for case in CASES}
    assert all(1e8 < rate < 1e14 for rate in rates.values())
    assert 1e8 < ceilings.bandwidth(1) < 1e13
    assert list(ceilings.bandwidths) == [READ_BYTES]
    workers.close()


def test_a_wrong_result_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = tuple(replace(case, tolerance=-1.0) for case in CASES)
    monkeypatch.setattr(module, "CASES", impossible)
    with pytest.raises(ConfigError, match="linear Q4_1 computes something else"):
        kernels(SMALL)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"ops": ("multiply",)}, "ops must be of linear"),
        ({"formats": ()}, "formats must be of Q4_0"),
        ({"hidden_size": 300}, "hidden_size must be a multiple of 256"),
        ({"rows": (4096,), "context": 100_000}, "lower rows"),
        ({"hidden_size": 1 << 16, "intermediate_size": 1 << 16}, "lower rows"),
    ],
)
def test_nonsense_is_refused_by_name(change: dict[str, object], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        kernels(replace(SMALL, **change))
