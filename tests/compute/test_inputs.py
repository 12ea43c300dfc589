"""Flattening a batch: which token goes where, what is stored, which blocks are begun."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import torch

from octavo.compute.inputs import StepInputs, step_inputs
from octavo.core.batch import Row
from octavo.core.request import Request
from tests.compute.steps import Steps


def with_table(steps: Steps, n_tokens: int, *, computed: int, blocks: list[int]) -> Request:
    request = steps.request(range(100, 100 + n_tokens))
    request.computed = computed
    assert request.table is not None
    request.table.groups[0] = array("i", blocks)
    return request


def flatten(rows: list[Row]) -> StepInputs:
    return step_inputs(rows, block_tokens=4, device=torch.device("cpu"))


def test_rows_are_flattened_in_order() -> None:
    steps = Steps(9, block_tokens=4)
    chunk = with_table(steps, 20, computed=2, blocks=[7, 3])
    decode = with_table(steps, 6, computed=5, blocks=[5, 1])
    inputs = flatten([steps.row(chunk, 7), steps.row(decode)])
    assert inputs.tokens.tolist() == [102, 103, 104, 105, 106, 105]
    assert inputs.positions.tolist() == [2, 3, 4, 5, 6, 5]
    assert inputs.logit_rows.tolist() == [5]
    (attention,) = inputs.attention
    assert attention.row_starts.tolist() == [0, 5, 6]
    assert attention.kv_tokens.tolist() == [7, 6]
    assert attention.block_tables.tolist() == [[7, 3], [5, 1]]
    assert attention.block_tables.dtype == np.int32
    assert attention.slots.tolist() == [30, 31, 12, 13, 14, 5]
    assert inputs.begun_blocks == [3]


@pytest.mark.parametrize(
    ("start", "end", "write_from", "slots", "begun"),
    [
        (0, 3, 0, [8, 9, 10], [2]),
        (0, 4, 0, [8, 9, 10, 11], []),
        (0, 5, 0, [8, 9, 10, 11, 12], [3]),
        (3, 6, 3, [11, 12, 13], [3]),
        (5, 6, 5, [13], []),
        (5, 6, 6, [-1], []),
        (0, 6, 5, [-1, -1, -1, -1, -1, 13], []),
        (0, 6, 4, [-1, -1, -1, -1, 12, 13], [3]),
        (0, 3, 9, [-1, -1, -1], []),
    ],
)
def test_what_is_stored_and_which_block_is_begun(
    start: int, end: int, write_from: int, slots: list[int], begun: list[int]
) -> None:
    """A block that already holds stored tokens is not a begun one, whoever stored them."""
    steps = Steps(9, block_tokens=4)
    request = with_table(steps, 12, computed=start, blocks=[2, 3, 4])
    inputs = flatten([steps.row(request, end, write_from=write_from)])
    assert inputs.attention[0].slots.tolist() == slots
    assert inputs.begun_blocks == begun


def test_each_group_has_its_own_tables_and_slots() -> None:
    """The first block of the second group has left its window; lengths are the same in both."""
    steps = Steps(9, block_tokens=4, groups=2)
    long = steps.request(range(100, 109), name="long")
    short = steps.request(range(3), name="short")
    for request, groups in ((long, ([7, 3, 2], [0, 1, 4])), (short, ([5], [6]))):
        assert request.table is not None
        request.table.groups = [array("i", blocks) for blocks in groups]
    long.computed = 6
    inputs = flatten([steps.row(long), steps.row(short)])
    full, sliding = inputs.attention
    assert full.block_tables.tolist() == [[7, 3, 2], [5, 0, 0]]
    assert sliding.block_tables.tolist() == [[0, 1, 4], [6, 0, 0]]
    assert full.slots.tolist() == [14, 15, 8, 20, 21, 22]
    assert sliding.slots.tolist() == [6, 7, 16, 24, 25, 26]
    assert full.kv_tokens.tolist() == sliding.kv_tokens.tolist() == [9, 3]
    assert sorted(inputs.begun_blocks) == [2, 4, 5, 6]


def test_storing_where_the_table_has_nothing_is_our_bug() -> None:
    steps = Steps(9, block_tokens=4)
    request = with_table(steps, 6, computed=4, blocks=[2, 0])
    with pytest.raises(AssertionError):
        flatten([steps.row(request)])
