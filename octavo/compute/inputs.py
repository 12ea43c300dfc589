"""A Batch as tensors. Reads only the tokens that a step adds; keeps nothing between steps.

Owns the flattening of rows and the arithmetic of slots. Knows no model and no backend.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octavo.compute.attention import AttentionRows
from octavo.core.batch import Row
from octavo.core.table import NOTHING

NOT_STORED = -1


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step, flattened: row after row, each row's tokens in order.

    tokens, positions  int64 [tokens], on the device
    logit_rows         int64 [sampled positions]: the flattened tokens whose logits are wanted,
                       per sampling row its last known token and then its drafts
    attention          per group, where K and V are and go
    begun_blocks       blocks that this step starts to fill and does not fill up
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    logit_rows: torch.Tensor
    attention: tuple[AttentionRows, ...]
    begun_blocks: list[int]


def step_inputs(rows: Sequence[Row], *, block_tokens: int, device: torch.device) -> StepInputs:
    """Flatten `rows` (at least one). Each row's block tables are read here and only here.

    Plain lists, turned into arrays once: a step has few rows, or its tokens take long anyway.
    """
    assert rows
    tokens: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    begun: list[int] = []
    row_starts, kv_tokens = [0], []
    tables = [_groups(row) for row in rows]
    slots: list[list[int]] = [[] for _ in tables[0]]
    for row, groups in zip(rows, tables, strict=True):
        start, end, n_drafts = row.start, row.end, len(row.drafts)
        assert start < end
        tokens += row.request.tokens[start : end - n_drafts]
        tokens += row.drafts
        positions += range(start, end)
        row_starts.append(len(positions))
        kv_tokens.append(end)
        if row.samples:
            wanted += range(len(positions) - 1 - n_drafts, len(positions))
        stored_from = min(max(start, row.write_from), end)
        for into, blocks in zip(slots, groups, strict=True):
            into += [NOT_STORED] * (stored_from - start)
            _add_slots(into, blocks, first=stored_from, end=end, block_tokens=block_tokens)
            if _begins(stored_from, end, block_tokens=block_tokens):
                begun.append(blocks[(end - 1) // block_tokens])
    assert len(tokens) == len(positions)
    starts, ends = np.array(row_starts, dtype=np.int32), np.array(kv_tokens, dtype=np.int32)
    attention = [
        AttentionRows(starts, ends, _padded(of_rows), np.array(into, dtype=np.int64))
        for of_rows, into in zip(zip(*tables, strict=True), slots, strict=True)
    ]
    return StepInputs(
        tokens=_int64(tokens, device),
        positions=_int64(positions, device),
        logit_rows=_int64(wanted, device),
        attention=tuple(attention),
        begun_blocks=begun,
    )


def _int64(values: list[int], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int64)).to(device)


def _groups(row: Row) -> Sequence[array[int]]:
    assert row.request.table is not None
    return row.request.table.groups


def _add_slots(
    into: list[int], blocks: array[int], *, first: int, end: int, block_tokens: int
) -> None:
    """block id · block_tokens + offset of each position in [first, end)."""
    while first < end:
        index, offset = divmod(first, block_tokens)
        stop = min(end, first - offset + block_tokens)
        assert blocks[index] > NOTHING
        slot = blocks[index] * block_tokens + offset
        into += range(slot, slot + stop - first)
        first = stop


def _begins(first: int, end: int, *, block_tokens: int) -> bool:
    """Whether storing [first, end) fills the first slot of its last block, and not the last one."""
    opened = (end - 1) // block_tokens * block_tokens
    return first <= opened and first < end and end % block_tokens != 0


def _padded(tables: Sequence[array[int]]) -> np.ndarray:
    """int32 [rows, longest table], padded with NOTHING.

    The copies matter: a table grows in the next step, and an array whose memory is still exported
    cannot.
    """
    ids = np.full((len(tables), max(map(len, tables))), NOTHING, dtype=np.int32)
    for into, blocks in zip(ids, tables, strict=True):
        if blocks:
            into[: len(blocks)] = np.frombuffer(blocks, dtype=np.int32)
    return ids
