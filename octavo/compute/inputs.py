"""A Batch as tensors. Reads only the tokens that a step adds; keeps nothing between steps.

Owns the flattening of rows and the arithmetic of slots. Knows no model and no backend.
"""

from __future__ import annotations

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
    """Flatten `rows` (at least one). Each row's block table is read here and only here."""
    assert rows
    starts = np.array([row.start for row in rows], dtype=np.int64)
    ends = np.array([row.end for row in rows], dtype=np.int64)
    write_from = np.array([row.write_from for row in rows], dtype=np.int64)
    lengths = ends - starts
    assert (lengths > 0).all()
    row_starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=row_starts[1:])
    row_of = np.repeat(np.arange(len(rows)), lengths)
    positions = np.arange(row_starts[-1]) - (row_starts[:-1] - starts)[row_of]
    kv_tokens, first_of = ends.astype(np.int32), row_starts.astype(np.int32)
    groups, begun = [], []
    for tables in _block_tables(rows):
        slots = _slots(tables, positions, row_of=row_of, write_from=write_from, block=block_tokens)
        groups.append(AttentionRows(first_of, kv_tokens, tables, slots))
        begun += _begun(tables, np.maximum(starts, write_from), ends=ends, block=block_tokens)
    wanted = [
        place
        for row, stop in zip(rows, row_starts[1:].tolist(), strict=True)
        if row.samples
        for place in range(stop - 1 - len(row.drafts), stop)
    ]
    return StepInputs(
        tokens=torch.from_numpy(_tokens(rows, int(row_starts[-1]))).to(device),
        positions=torch.from_numpy(positions).to(device),
        logit_rows=torch.tensor(wanted, dtype=torch.int64).to(device),
        attention=tuple(groups),
        begun_blocks=begun,
    )


def _tokens(rows: Sequence[Row], n_tokens: int) -> np.ndarray:
    """The rows' new token ids, confirmed ones then drafts: int64 [tokens]."""
    flat: list[int] = []
    for row in rows:
        flat += row.request.tokens[row.start : row.end - len(row.drafts)]
        flat += row.drafts
    assert len(flat) == n_tokens
    return np.array(flat, dtype=np.int64)


def _block_tables(rows: Sequence[Row]) -> list[np.ndarray]:
    """Per group int32 [rows, longest table], padded with NOTHING.

    The copies matter: a table grows in the next step, and an array whose memory is still exported
    cannot.
    """
    tables = []
    for row in rows:
        assert row.request.table is not None
        tables.append(row.request.table.groups)
    shape = (len(rows), max(len(groups[0]) for groups in tables))
    found = []
    for of_rows in zip(*tables, strict=True):
        ids = np.full(shape, NOTHING, dtype=np.int32)
        for into, blocks in zip(ids, of_rows, strict=True):
            if blocks:
                into[: len(blocks)] = np.frombuffer(blocks, dtype=np.int32)
        found.append(ids)
    return found


def _slots(
    tables: np.ndarray,
    positions: np.ndarray,
    *,
    row_of: np.ndarray,
    write_from: np.ndarray,
    block: int,
) -> np.ndarray:
    """block id · block_tokens + offset of each token, NOT_STORED below `write_from`."""
    stored = positions >= write_from[row_of]
    slots = np.full(positions.shape, NOT_STORED, dtype=np.int64)
    where = positions[stored]
    ids = tables[row_of[stored], where // block].astype(np.int64)
    assert (ids > NOTHING).all()
    slots[stored] = ids * block + where % block
    return slots


def _begun(tables: np.ndarray, first: np.ndarray, *, ends: np.ndarray, block: int) -> list[int]:
    """The last block of each row that stores [first, end), if its first slot is among those and its
    last one is not."""
    opened = (ends - 1) // block
    begun = (first <= opened * block) & (first < ends) & (ends % block != 0)
    ids: list[int] = tables[begun, opened[begun]].tolist()
    return ids
