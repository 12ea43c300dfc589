"""A decoder as lists of ops, recorded once: `body` from tokens to hidden states, `head` to logits.

Owns the order of ops and the memory between them; the same decoder as `octavo.compute.decoder`,
whose flags it reads. Everything between ops is float32 but the rows that enter a product of
quantised weights, which are bytes with a scale per 32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from octavo.compute.attention import AttentionShape, Window
from octavo.compute.families import family_of
from octavo.compute.native import structs
from octavo.compute.native.buffers import floats
from octavo.compute.native.layers import LayerPanels, ModelPanels
from octavo.compute.native.library import Library, Program
from octavo.compute.native.panels import Panels
from octavo.compute.native.pool import NativeKVPool
from octavo.compute.native.products import (
    WANTED,
    Operand,
    Recorded,
    gate,
    linear,
    norm,
    norm_onto,
    pointer,
    quantise,
)
from octavo.compute.rope import RopeTable
from octavo.core.model_config import ModelConfig

HEAD_ROWS = 256  # logits are made for this many positions at a time
PARTIALS = 4096  # (row, chunk) pairs of single-token rows that several workers may share out
_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest step, in tokens and rows."""

    tokens: int
    rows: int


class Recorder:
    """Records both programs for one model and one pool."""

    def __init__(
        self,
        config: ModelConfig,
        panels: ModelPanels,
        *,
        pool: NativeKVPool,
        shape: AttentionShape,
        ropes: Sequence[RopeTable],
        limits: Limits,
        share_prefix_reads: bool = True,
    ) -> None:
        self._config = config
        self._panels = panels
        self._pool = pool
        self._shape = shape
        self._ropes = ropes
        self._limits = limits
        self._family = family_of(config)
        self._share = share_prefix_reads
        heads, dim, tokens = config.n_heads, config.head_dim, limits.tokens
        self._x = floats(tokens, config.hidden_size)
        self._qkv = floats(tokens, (heads + 2 * config.kv_heads) * dim)
        self._q = floats(tokens, heads * dim)
        posts = any(layer.attn_post_norm is not None for layer in panels.layers)
        self._post = floats(tokens, config.hidden_size) if posts else None
        self._normed = Operand(tokens, config.hidden_size)
        self._attended = Operand(tokens, heads * dim)
        self._gated = Operand(tokens, config.intermediate_size)
        self._last = Operand(HEAD_ROWS, config.hidden_size)
        self._stats = floats(PARTIALS, heads, 2)
        self._sums = floats(PARTIALS, heads, dim)
        self._plans = [Plan(limits) for _ in shape.groups]
        self._places = {
            layer: (number, index)
            for number, group in enumerate(shape.groups)
            for index, layer in enumerate(group.layers)
        }
        self._windows = shape.windows()

    def body(self, library: Library) -> Program:
        """Tokens to the hidden states of the wanted ones: float32 [wanted, hidden] in `out`."""
        ops: Recorded = [("attention_plan", self._planning(number)) for number in self._groups()]
        ops.append(("embed", self._embed()))
        for number, layer in enumerate(self._panels.layers):
            ops += self._attention_half(number, layer)
            ops += self._mlp_half(layer)
        gather = structs.Gather(x=self._x.data_ptr(), k=self._config.hidden_size)
        return Program(library, [*ops, ("gather", gather)], keep=self)

    def head(self, library: Library) -> Program:
        """`input` [wanted, hidden] to logits float32 [wanted, vocab] in `out`, without the cap."""
        head, config = self._panels.head, self._config
        ops = norm(
            self._panels.norm,
            x=None,
            to=self._last,
            readers=[head],
            eps=config.norm_eps,
            rows=WANTED,
        )
        ops += linear(head, self._last, y=None, y_stride=config.vocab_size, rows=WANTED)
        return Program(library, ops, keep=self)

    def _groups(self) -> range:
        return range(len(self._shape.groups))

    def _attention_half(self, number: int, layer: LayerPanels) -> Recorded:
        attention = self._attention(number)
        ops = self._normed_for(layer.qkv, layer.attn_norm)
        ops += self._projections(layer)
        ops.append(("rope_write", self._rope_write(number, layer)))
        ops += [("attention", attention), ("attention_merge", attention)]
        ops += quantise(self._attended, reader=layer.out)
        return ops + self._onto_residual(
            layer.out, self._attended, bias=layer.out_bias, post_norm=layer.attn_post_norm
        )

    def _mlp_half(self, layer: LayerPanels) -> Recorded:
        ops = self._normed_for([layer.gate_up], layer.mlp_norm)
        ops += gate(
            layer.gate_up,
            self._normed,
            to=self._gated,
            reader=layer.down,
            bias=layer.gate_up_bias,
            activation=_ACTIVATIONS[self._family.activation],
        )
        return ops + self._onto_residual(
            layer.down, self._gated, bias=layer.down_bias, post_norm=layer.mlp_post_norm
        )

    def _normed_for(self, readers: Sequence[Panels], weight: torch.Tensor) -> Recorded:
        eps = self._config.norm_eps
        return norm(weight, x=self._x, to=self._normed, readers=readers, eps=eps)

    def _projections(self, layer: LayerPanels) -> Recorded:
        """q, k and v side by side, one product for each format among them."""
        ops: Recorded = []
        column, width = 0, self._qkv.shape[1]
        for panels in layer.qkv:
            bias = pointer(layer.qkv_bias)
            ops += linear(
                panels,
                self._normed,
                bias=None if bias is None else bias + 4 * column,
                y=self._qkv.data_ptr() + 4 * column,
                y_stride=width,
            )
            column += panels.weights.n
        return ops

    def _onto_residual(
        self,
        panels: Panels,
        x: Operand,
        *,
        bias: torch.Tensor | None,
        post_norm: torch.Tensor | None,
    ) -> Recorded:
        """x += product, by way of a norm where the family has one there."""
        through = self._x if post_norm is None else self._post
        assert through is not None
        ops = linear(
            panels,
            x,
            bias=pointer(bias),
            y=through.data_ptr(),
            y_stride=self._config.hidden_size,
            add=post_norm is None,
        )
        if post_norm is not None:
            ops += norm_onto(self._x, post_norm, x=through, eps=self._config.norm_eps)
        return ops

    def _embed(self) -> structs.Embed:
        scale = self._config.hidden_size**0.5 if self._family.scaled_embedding else 1.0
        return structs.Embed(weights=self._panels.embed.weights, x=self._x.data_ptr(), scale=scale)

    def _rope_write(self, number: int, layer: LayerPanels) -> structs.RopeWrite:
        config, shape = self._config, self._shape
        group, place = self._places[number]
        local = len(self._ropes) > 1 and number in config.sliding_layers
        rope = self._ropes[int(local)]
        return structs.RopeWrite(
            pool=self._pool.struct,
            qkv=self._qkv.data_ptr(),
            q_norm=pointer(layer.q_norm),
            k_norm=pointer(layer.k_norm),
            cos=rope.cos.data_ptr(),
            sin=rope.sin.data_ptr(),
            q=self._q.data_ptr(),
            n_heads=config.n_heads,
            rope_dim=rope.cos.shape[1],
            layer=place,
            group=group,
            eps=config.norm_eps,
            scale=config.head_dim**-0.5 if shape.scale is None else shape.scale,
        )

    def _planning(self, number: int) -> structs.AttentionPlanning:
        return structs.AttentionPlanning(
            plan=ctypes.pointer(self._plans[number].struct),
            block_tokens=self._pool.block_tokens,
            window=_window(self._windows[number]),
            heads_per_kv=self._config.n_heads // self._config.kv_heads,
            group=number,
            share=int(self._share),
        )

    def _attention(self, number: int) -> structs.Attention:
        group, place = self._places[number]
        return structs.Attention(
            pool=self._pool.struct,
            plan=ctypes.pointer(self._plans[group].struct),
            q=self._q.data_ptr(),
            out=self._attended.floats.data_ptr(),
            stats=self._stats.data_ptr(),
            sums=self._sums.data_ptr(),
            n_heads=self._config.n_heads,
            layer=place,
            window=_window(self._windows[group]),
            group=group,
            softcap=self._shape.softcap or 0.0,
        )


class Plan:
    """Room for one group's plan of a step."""

    def __init__(self, limits: Limits) -> None:
        def ints(n: int) -> torch.Tensor:
            return torch.zeros(n, dtype=torch.int32)

        rows = limits.rows
        self._items = ints(4 * (PARTIALS + limits.tokens))
        self._members = ints(PARTIALS)
        self._per_row = [ints(rows) for _ in range(6)]
        first, begin, last, merged, order, ends = (each.data_ptr() for each in self._per_row)
        self.struct = structs.AttentionPlan(
            partial_capacity=PARTIALS,
            items=self._items.data_ptr(),
            members=self._members.data_ptr(),
            first_partial=first,
            first_chunk=begin,
            last_chunk=last,
            merged=merged,
            order=order,
            ends=ends,
        )


def _window(window: Window) -> int:
    return 0 if window is None else window
