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
from octavo.compute.families import family_of
from octavo.compute.rope import RopeTable, Rotation
from octavo.core.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer. Matrices are [out, in]; `qkv` and `gate_up` are their parts stacked by rows."""

    attn_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    out: torch.Tensor
    out_bias: torch.Tensor | None = None
    attn_post_norm: torch.Tensor | None = None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None = None
    down: torch.Tensor
    down_bias: torch.Tensor | None = None
    mlp_post_norm: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """`embed` and `head` are [vocab, hidden] and the same tensor if tied; norms are float32."""

    embed: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


class Decoder:
    """A pre-norm transformer decoder: RMSNorm, rotary attention, gated MLP.

    Layers in `config.sliding_layers` rotate by `local_rope` where there is one.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        *,
        rope: RopeTable,
        local_rope: RopeTable | None = None,
    ) -> None:
        family = family_of(config)
        self.config = config
        self.weights = weights
        self.rope = rope
        self._ropes = [rope] if local_rope is None else [rope, local_rope]
        sliding = frozenset(config.sliding_layers) if local_rope is not None else frozenset[int]()
        self._rope_of = [int(layer in sliding) for layer in range(config.n_layers)]
        self._q_size = config.n_heads * config.head_dim
        self._gate = _GATES[family.activation]
        # Rounded to the model's own dtype first, as the models of this kind were trained.
        scale = torch.tensor(config.hidden_size**0.5, device=weights.embed.device)
        self._embed_scale = scale.to(weights.embed.dtype) if family.scaled_embedding else None

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
        this step.
        """
        return self.logits(
            self.hidden(tokens, positions, backend=backend, plan=plan, wanted=logit_rows)
        )

    def hidden(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        *,
        backend: AttentionBackend,
        plan: Any,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        """Hidden states [wanted, hidden] of those tokens; arguments as for `forward`.

        K and V of every token are written before its layer attends.
        """
        rotations = [rope.at(positions) for rope in self._ropes]
        x = F.embedding(tokens, self.weights.embed)
        if self._embed_scale is not None:
            x = x * self._embed_scale
        for number, layer in enumerate(self.weights.layers):
            rotation = rotations[self._rope_of[number]]
            q, k, v = self._project(self._norm(x, layer.attn_norm), layer, rotation=rotation)
            backend.write(number, k, v, plan)
            mixed = backend.attend(number, q, plan).reshape(x.shape[0], self._q_size)
            mixed = F.linear(mixed, layer.out, layer.out_bias)
            x = x + self._post_norm(mixed, layer.attn_post_norm)
            gated = self._gate(
                F.linear(self._norm(x, layer.mlp_norm), layer.gate_up, layer.gate_up_bias)
            )
            x = x + self._post_norm(
                F.linear(gated, layer.down, layer.down_bias), layer.mlp_post_norm
            )
        return x.index_select(0, wanted)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states [rows, hidden] -> float32 [rows, vocab]."""
        logits = F.linear(self._norm(x, self.weights.norm), self.weights.head).float()
        cap = self.config.logit_softcap
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)

    def _project(
        self, x: torch.Tensor, layer: LayerWeights, *, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k (rotated) and v, [tokens, heads, head_dim] each, by one matmul and one rotation."""
        config = self.config
        qkv = F.linear(x, layer.qkv, layer.qkv_bias)
        heads = qkv.view(x.shape[0], -1, config.head_dim)
        turned = heads[:, : config.n_heads + config.kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = turned[:, : config.n_heads], turned[:, config.n_heads :]
            turned = torch.cat((self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)), dim=1)
        turned = rotation.apply(turned)
        v = heads[:, config.n_heads + config.kv_heads :]
        return turned[:, : config.n_heads], turned[:, config.n_heads :], v

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm in float32, returned in the dtype of `x`."""
        normed = F.rms_norm(x.float(), weight.shape, weight, self.config.norm_eps)
        return normed.to(x.dtype)

    def _post_norm(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return x if weight is None else self._norm(x, weight)


def _silu_gate(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of [tokens, 2 · intermediate]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _gelu_gate(gate_up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) · up of [tokens, 2 · intermediate], GELU in its tanh form."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh").mul_(up)


_GATES = {"silu": _silu_gate, "gelu_tanh": _gelu_gate}
