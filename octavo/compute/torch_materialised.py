"""Attention of plain torch with all scores of a row at once: what tiles are measured against.

For ablations only. Owns the softmax over the whole matrix; planning, writing and rows of one token,
whose scores are one line either way, are `torch_paged`'s.
"""

from __future__ import annotations

import torch

from octavo.compute.torch_paged import TorchPaged
from octavo.compute.torch_plan import Chunk


class TorchMaterialised(TorchPaged):
    """`TorchPaged` but for rows of several tokens."""

    def _attend_chunk(self, layer: int, q: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        """One row's queries -> float32 [tokens, heads, head_dim], by scores
        [kv_heads, tokens · group, positions]."""
        shape = self._shape
        n, kv_heads = chunk.stop - chunk.start, shape.kv_heads
        queries = q[chunk.start : chunk.stop].view(n, kv_heads, -1, shape.head_dim)
        folded = queries.permute(1, 0, 2, 3).reshape(kv_heads, -1, shape.head_dim).float()
        keys, values = (
            torch.cat([self._tile(rows, tile.gather, kv_heads) for tile in chunk.tiles], dim=1)
            for rows in (self._keys[layer], self._values[layer])
        )
        scores = self._cap(torch.bmm(folded * self._scale, keys.transpose(1, 2)))
        by_token = scores.view(kv_heads, n, -1, scores.shape[-1])
        widths = [tile.gather.numel() // kv_heads * shape.block_tokens for tile in chunk.tiles]
        by_token.add_(_mask(chunk, n, widths=widths, like=scores))
        out = torch.bmm(scores.softmax(-1), values).view(kv_heads, n, -1, shape.head_dim)
        return out.permute(1, 0, 2, 3).reshape(n, shape.n_heads, shape.head_dim)


def _mask(chunk: Chunk, n_tokens: int, *, widths: list[int], like: torch.Tensor) -> torch.Tensor:
    """[tokens, 1, positions]: -inf where a token does not read, else 0. `widths`: of the tiles."""
    mask = like.new_full((n_tokens, 1, sum(widths)), -torch.inf)
    begin = 0
    for tile, width in zip(chunk.tiles, widths, strict=True):
        for span in tile.spans:
            seen = mask[span.start : span.stop, :, begin : begin + width]
            seen.copy_(seen.new_zeros(()) if span.mask is None else span.mask)
        begin += width
    return mask
