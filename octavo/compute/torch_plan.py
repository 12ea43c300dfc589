"""How the plain-torch backend cuts a step into tiles. Index arithmetic only: no K, no V, no layers.

KV tiles have a fixed size and start at multiples of it in absolute positions, so the sums behind a
token do not depend on how its prompt was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from octavo.compute.attention import AttentionRows, Window
from octavo.compute.kv_pool import KVPool
from octavo.core.table import NOTHING

TILE_TOKENS = 256  # KV positions per tile
QUERY_TOKENS = 128  # query positions per tile
PASS_ELEMENTS = 1 << 20  # K elements that one pass over single-token rows gathers: 4 MiB in float32


@dataclass(frozen=True, slots=True)
class Writes:
    """`kept`: tokens to store (None: all). `rows`: pool slot rows, int64 [kept · kv_heads]."""

    kept: torch.Tensor | None
    rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class Singles:
    """All rows of one token. An item is one (row, KV tile); items go by row, then by tile.

    tokens   int64 [rows]: their places in the step, None when the step is nothing else
    row      int64 [items]: which of these rows the item belongs to
    gather   int64 [items, kv_heads · blocks per tile]: pool head rows
    mask     float32 [items, 1, tile]: -inf at positions that the row must not read, else 0
    merge    some row has more than one item
    """

    tokens: torch.Tensor | None
    n_rows: int
    row: torch.Tensor
    gather: torch.Tensor
    mask: torch.Tensor
    merge: bool
    items_per_pass: int


@dataclass(frozen=True, slots=True)
class Span:
    """Query tokens [start, stop) of a row, and a mask as above (None: they read the whole tile).

    mask: float32 [stop - start, 1, tile].
    """

    start: int
    stop: int
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Tile:
    """One KV tile of one row: pool head rows int64 [kv_heads · blocks], and who reads it."""

    gather: torch.Tensor
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A row of several tokens: its place [start, stop) in the step and its KV tiles in order."""

    start: int
    stop: int
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """How to read the pool under one window."""

    singles: Singles | None
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One step of one group: where to write and how to read."""

    writes: Writes
    walk: Walk


def plan_writes(rows: AttentionRows, pool: KVPool) -> Writes:
    """Slot numbers -> rows of `KVPool.slot_rows`, one for each KV head."""
    stored = rows.slots >= 0
    slots = rows.slots[stored]
    blocks, offsets = np.divmod(slots, pool.block_tokens)
    assert not slots.size or (blocks.min() > NOTHING and blocks.max() <= pool.num_blocks)
    head_rows = blocks * pool.head_rows_per_block
    heads = np.arange(pool.kv_heads)
    slot_rows = (head_rows[:, None] + heads) * pool.block_tokens + offsets[:, None]
    kept = None if stored.all() else _device(np.flatnonzero(stored), pool)
    return Writes(kept, _device(slot_rows.reshape(-1), pool))


def plan_walks(groups: Sequence[AttentionRows], pool: KVPool, window: Window) -> list[Walk]:
    """Cut the step: rows of one token are read together, longer rows one by one.

    `groups` are the same rows under the same window with tables of their own: one walk for each,
    which differ in what they gather.
    """
    rows, tables = groups[0], [group.block_tables for group in groups]
    lengths = np.diff(rows.row_starts)
    single = np.flatnonzero(lengths == 1)
    singles: list[Singles | None] = [None] * len(groups)
    if single.size:
        singles[:] = _plan_singles(rows, tables, single, pool=pool, window=window)
    chunks: list[list[Chunk]] = [[] for _ in groups]
    for row in np.flatnonzero(lengths > 1):
        planned = _plan_chunk(rows, tables, int(row), pool=pool, window=window)
        for of_group, chunk in zip(chunks, planned, strict=True):
            of_group.append(chunk)
    return [Walk(one, tuple(many)) for one, many in zip(singles, chunks, strict=True)]


def tile_blocks(block_tokens: int) -> int:
    """Blocks per KV tile: at least one, else as many as fit TILE_TOKENS."""
    return max(1, TILE_TOKENS // block_tokens)


def _plan_singles(
    rows: AttentionRows,
    tables: Sequence[np.ndarray],
    which: np.ndarray,
    *,
    pool: KVPool,
    window: Window,
) -> list[Singles]:
    known = rows.kv_tokens[which].astype(np.int64)
    per_tile = tile_blocks(pool.block_tokens)
    tile_tokens = per_tile * pool.block_tokens
    first_live = np.zeros_like(known) if window is None else np.maximum(known - window, 0)
    first_tile = first_live // tile_tokens
    count = -(-known // tile_tokens) - first_tile
    item_row = np.repeat(np.arange(which.size), count)
    item_tile = np.arange(item_row.size) - np.repeat(np.cumsum(count) - count - first_tile, count)
    # Short contexts only: no item reads further than the longest row.
    width = min(per_tile, int(-(-known.max() // pool.block_tokens)))
    logical = item_tile[:, None] * per_tile + np.arange(width)
    # Numbers past the row's last block become that one (masked anyway).
    last = (known[item_row] - 1) // pool.block_tokens
    read, of_row = np.minimum(logical, last[:, None]), which[item_row]
    ids = [
        _readable(
            table[of_row[:, None], read],
            fallback=table[of_row, last][:, None],
            pool=pool,
            window=window,
        )
        for table in tables
    ]
    positions = item_tile[:, None] * tile_tokens + np.arange(width * pool.block_tokens)
    mask = _mask(known[item_row, None] - 1, positions, window)
    row_elements = pool.kv_heads * pool.head_dim
    every = which.size == rows.kv_tokens.size
    planned = Singles(
        tokens=None if every else _device(rows.row_starts[which].astype(np.int64), pool),
        n_rows=which.size,
        row=_device(item_row, pool),
        gather=_device(_head_rows(ids[0], pool), pool),
        mask=_device(mask[:, None, :], pool),
        merge=bool((count > 1).any()),
        items_per_pass=max(1, PASS_ELEMENTS // (width * pool.block_tokens * row_elements)),
    )
    others = [replace(planned, gather=_device(_head_rows(each, pool), pool)) for each in ids[1:]]
    return [planned, *others]


def _plan_chunk(
    rows: AttentionRows,
    tables: Sequence[np.ndarray],
    row: int,
    *,
    pool: KVPool,
    window: Window,
) -> list[Chunk]:
    start, stop = int(rows.row_starts[row]), int(rows.row_starts[row + 1])
    known = int(rows.kv_tokens[row])
    first = known - (stop - start)
    per_tile = tile_blocks(pool.block_tokens)
    tile_tokens = per_tile * pool.block_tokens
    first_live = 0 if window is None else max(first + 1 - window, 0)
    last_block = (known - 1) // pool.block_tokens
    tiles: list[list[Tile]] = [[] for _ in tables]
    for tile in range(first_live // tile_tokens, -(-known // tile_tokens)):
        blocks = np.arange(tile * per_tile, min((tile + 1) * per_tile, last_block + 1))
        positions = tile * tile_tokens + np.arange(blocks.size * pool.block_tokens)
        spans = _plan_spans(first, known, positions=positions, pool=pool, window=window)
        for of_group, table in zip(tiles, tables, strict=True):
            own = table[row]
            ids = _readable(own[blocks], fallback=own[last_block], pool=pool, window=window)
            of_group.append(Tile(_device(_head_rows(ids[None], pool)[0], pool), spans))
    return [Chunk(start, stop, tuple(of_group)) for of_group in tiles]


def _plan_spans(
    first: int, known: int, *, positions: np.ndarray, pool: KVPool, window: Window
) -> tuple[Span, ...]:
    """Query tiles of positions [first, known) that read anything at `positions`, cut at absolute
    multiples of QUERY_TOKENS."""
    spans = []
    low, high = int(positions[0]), int(positions[-1])
    for tile_start in range(first // QUERY_TOKENS * QUERY_TOKENS, known, QUERY_TOKENS):
        begin, end = max(first, tile_start), min(known, tile_start + QUERY_TOKENS)
        if low >= end or (window is not None and high <= begin - window):
            continue
        whole = high <= begin and (window is None or low > end - 1 - window)
        mask = None
        if not whole:
            hidden = _mask(np.arange(begin, end)[:, None], positions[None, :], window)
            mask = _device(hidden[:, None, :], pool)
        spans.append(Span(begin - first, end - first, mask))
    return tuple(spans)


def _mask(queries: np.ndarray, positions: np.ndarray, window: Window) -> np.ndarray:
    """-inf where a query at `queries` must not read `positions`, else 0: added to the scores.

    Addition, since filling by a boolean that is broadcast over heads is forty times slower.
    """
    hidden: np.ndarray = positions > queries
    if window is not None:
        hidden |= positions <= queries - window
    return np.where(hidden, np.float32(-np.inf), np.float32(0))


def _readable(ids: np.ndarray, *, fallback: np.ndarray, pool: KVPool, window: Window) -> np.ndarray:
    """`ids`, those that a window has left replaced by one of the same row's, masked anyway.

    So nothing is ever read but the row's own blocks.
    """
    read = ids if window is None else np.where(ids == NOTHING, fallback, ids)
    assert read.min() > NOTHING
    assert read.max() <= pool.num_blocks
    return read.astype(np.int64)


def _head_rows(ids: np.ndarray, pool: KVPool) -> np.ndarray:
    """Block ids [n, blocks] -> rows of `KVPool.head_rows` [n, kv_heads · blocks], heads first."""
    heads = np.arange(pool.kv_heads)[None, :, None]
    return (ids[:, None, :] * pool.head_rows_per_block + heads).reshape(ids.shape[0], -1)


def _device(values: np.ndarray, pool: KVPool) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(pool.device)
