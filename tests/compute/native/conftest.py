"""Every build of the kernels that this machine can run, and pools of threads for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.compute.native.library import Library, NotBuilt, Workers, load, usable_isas


def _isas() -> list[str]:
    try:
        return list(usable_isas())
    except NotBuilt:
        return []


@pytest.fixture(params=_isas() or ["none"])
def library(request: pytest.FixtureRequest) -> Library:
    """One build; the test runs once for each."""
    if request.param == "none":
        pytest.skip("the kernels were not built: no C++ compiler at installation")
    return load(request.param)


@pytest.fixture(params=[1, 2, 3])
def workers(request: pytest.FixtureRequest, library: Library) -> Iterator[Workers]:
    """One, two and three threads: also more than there are cores."""
    pool = Workers(library, request.param)
    yield pool
    pool.close()
