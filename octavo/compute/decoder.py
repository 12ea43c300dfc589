"""The one decoder: token ids and positions in, logits out. A family changes its data, not its code.

Works on the flattened tokens of all rows. Knows no requests, no blocks and no sampling: K and V go
to the attention backend and come back only through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from octavo.compute.attention import AttentionBackend
from octavo.compute.rope import RopeTable, Rotation
from octavo.core.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; `qkv` and `gate_up` are their parts stacked by rows."""

    attn_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    out: torch.Tensor
    out_bias: torch.Tensor | None = None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None = None
    down: torch.Tensor
    down_bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """`embed` and `head` are [vocab, hidden] and the same tensor if tied; norms are float32."""

    embed: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


class Decoder:
    """A pre-norm transformer decoder: RMSNorm, rotary attention, gated SiLU."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights, *, rope: RopeTable) -> None:
        self.config = config
        self.weights = weights
        self.rope = rope
        self._q_size = config.n_heads * config.head_dim
        self._kv_size = config.kv_heads * config.head_dim

    @property
    def device(self) -> torch.device:
        return self.weights.embed.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.embed.dtype

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        *,
        backend: AttentionBackend,
        plan: Any,
        logit_rows: torch.Tensor,
    ) -> torch.Tensor:
        """Logits float32 [logit_rows, vocab] of the flattened tokens that `logit_rows` names.

        tokens, positions, logit_rows: int64 [tokens], [tokens], [rows]. `plan` is the backend's for
        this step. K and V of every token are written before its layer attends.
        """
        rotation = self.rope.at(positions)
        x = F.embedding(tokens, self.weights.embed)
        for number, layer in enumerate(self.weights.layers):
            q, k, v = self._project(self._norm(x, layer.attn_norm), layer, rotation=rotation)
            backend.write(number, k, v, plan)
            mixed = backend.attend(number, q, plan).reshape(x.shape[0], self._q_size)
            x = x + F.linear(mixed, layer.out, layer.out_bias)
            gated = _gate(
                F.linear(self._norm(x, layer.mlp_norm), layer.gate_up, layer.gate_up_bias)
            )
            x = x + F.linear(gated, layer.down, layer.down_bias)
        wanted = self._norm(x.index_select(0, logit_rows), self.weights.norm)
        return F.linear(wanted, self.weights.head).float()

    def _project(
        self, x: torch.Tensor, layer: LayerWeights, *, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k (rotated) and v, [tokens, heads, head_dim] each, by one matmul and one rotation."""
        config = self.config
        qkv = F.linear(x, layer.qkv, layer.qkv_bias)
        heads = qkv.view(x.shape[0], -1, config.head_dim)
        turned = rotation.apply(heads[:, : config.n_heads + config.kv_heads])
        v = heads[:, config.n_heads + config.kv_heads :]
        return turned[:, : config.n_heads], turned[:, config.n_heads :], v

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm in float32, returned in the dtype of `x`."""
        normed = F.rms_norm(x.float(), weight.shape, weight, self.config.norm_eps)
        return normed.to(x.dtype)


def _gate(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of [tokens, 2 · intermediate]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
