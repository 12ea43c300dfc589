"""What a sequence keeps, part by part: layers of one kind, and the bytes they hold for T tokens.

Positions that a layer keeps come from `core.spec`'s kinds, so that planner and engine cannot
differ. Bytes are those of one rank of `tp`, exact and logical; `paged_bytes` adds the slots that a
sequence's last block leaves empty. Knows no config fields and no model names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octavo.core.spec import Full, Group, Kind, Sliding
from octavo.plan.formats import KVFormat

MLA_SCALE_ELEMENTS = 128  # of the fp8 layout of a latent: one float32 scale for each


class Part(Protocol):
    """Layers that keep the same thing."""

    @property
    def name(self) -> str: ...
    @property
    def layers(self) -> int: ...

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes that one more token adds to a sequence of any length; 0 where the part is bounded
        by a window or fixed."""

    def early_token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """The same for the first tokens, while no window is full."""

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes for a sequence of `tokens`."""

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        """The same in whole blocks of `block_tokens`."""

    def formula(self, fmt: KVFormat) -> str:
        """Bytes a token, or of the state, with the numbers in it."""


def up_to_block(tokens: int, block_tokens: int) -> int:
    """Slots of the blocks that hold `tokens`."""
    return -(-tokens // block_tokens) * block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """K and V of `kv_heads` heads, over the positions that `kind` reads.

    A rank of `tp` holds ceil(kv_heads / tp) of them: heads are copied once ranks outnumber them.
    """

    kind: Kind
    layers: int
    kv_heads: int
    key_dim: int
    value_dim: int
    chunked: bool = False  # the window begins anew at multiples of its size

    @property
    def name(self) -> str:
        if isinstance(self.kind, Sliding):
            return f"{'chunked' if self.chunked else 'sliding'} window of {self.kind.window:,}"
        return "full attention"

    def early_token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        heads = -(-self.kv_heads // tp)
        pair = fmt.vector_bytes(self.key_dim) + fmt.vector_bytes(self.value_dim)
        return self.layers * heads * pair

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        return self.early_token_bytes(fmt, tp) if self.kind.closed else 0

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        return self.early_token_bytes(fmt, tp) * self.kind.peak(tokens, 1)

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        slots = up_to_block(self.kind.peak(tokens, 1), block_tokens)
        return self.early_token_bytes(fmt, tp) * slots

    def formula(self, fmt: KVFormat) -> str:
        k, v = fmt.vector_bytes(self.key_dim), fmt.vector_bytes(self.value_dim)
        pair = f"2 · {k} B" if k == v else f"({k} + {v}) B"
        return f"{self.layers} layers · {self.kv_heads} KV heads · {pair}"


def attention_of(group: Group) -> Attention:
    """The engine's own group as a part."""
    return Attention(
        kind=group.kind,
        layers=len(group.layers),
        kv_heads=group.kv_heads,
        key_dim=group.head_dim,
        value_dim=group.head_dim,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PerToken:
    """One vector a token and layer that no rank shares out: a latent (MLA) or an indexer's key.

    `vector`: bytes of one token in one layer. Every tensor-parallel rank holds all of it.
    """

    name: str
    layers: int
    vector: Callable[[KVFormat], int]
    spelt: str

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        del tp
        return self.layers * self.vector(fmt)

    early_token_bytes = token_bytes

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        return self.token_bytes(fmt, tp) * tokens

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        return self.sequence_bytes(up_to_block(tokens, block_tokens), fmt, tp)

    def formula(self, fmt: KVFormat) -> str:
        return f"{self.layers} layers · {self.vector(fmt)} B ({self.spelt})"


def latent(layers: int, *, rank: int, rope_dim: int) -> PerToken:
    """Multi-head latent attention: K and V of all heads as one latent and one rotated key.

    In fp8 the latent has a float32 scale for each 128 elements and the rotated key stays 16-bit
    (the layout of 656 B of DeepSeek's kernels). Head counts of the config play no part.
    """

    def vector(fmt: KVFormat) -> int:
        if fmt.name != "fp8":
            return fmt.vector_bytes(rank) + fmt.vector_bytes(rope_dim)
        return rank + 4 * -(-rank // MLA_SCALE_ELEMENTS) + 2 * rope_dim

    return PerToken(
        name="latent (MLA)", layers=layers, vector=vector, spelt=f"{rank} latent + {rope_dim} rope"
    )


def fp8_index_keys(layers: int, *, dim: int) -> PerToken:
    """Keys of a sparse indexer, in fp8 with a float32 scale for each 128 whatever K and V are."""

    def vector(fmt: KVFormat) -> int:
        del fmt
        return dim + 4 * -(-dim // MLA_SCALE_ELEMENTS)

    return PerToken(
        name="index keys", layers=layers, vector=vector, spelt=f"{dim} in fp8, scales of 4 B"
    )


def index_keys(layers: int, *, dim: int) -> PerToken:
    """Keys of a sparse indexer that are stored as K and V are."""
    return PerToken(
        name="index keys",
        layers=layers,
        vector=lambda fmt: fmt.vector_bytes(dim),
        spelt=f"{dim} elements",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """Compressed sparse attention: the last `window` tokens as they are and one entry for each
    `ratio` tokens (0: none), each of `dim` elements; `index_bytes` beside an entry.

    Not sharded by heads. The compressor's own small state is not counted.
    """

    layers: int
    dim: int
    window: int
    ratio: int
    index_bytes: int = 0

    @property
    def name(self) -> str:
        return f"compressed 1:{self.ratio}" if self.ratio else f"sliding window of {self.window:,}"

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """Rounded up where an entry's bytes do not divide by the ratio."""
        del tp
        return -(-self.layers * self._entry(fmt) // self.ratio) if self.ratio else 0

    def early_token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        return self.token_bytes(fmt, tp) + self.layers * fmt.vector_bytes(self.dim)

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        del tp
        entries = tokens // self.ratio if self.ratio else 0
        kept = min(tokens, self.window) * fmt.vector_bytes(self.dim)
        return self.layers * (kept + entries * self._entry(fmt))

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        return self.sequence_bytes(up_to_block(tokens, block_tokens), fmt, tp)

    def formula(self, fmt: KVFormat) -> str:
        kept = f"min(T, {self.window}) · {fmt.vector_bytes(self.dim)} B"
        entries = f" + T/{self.ratio} · {self._entry(fmt)} B" if self.ratio else ""
        return f"{self.layers} layers · ({kept}{entries})"

    def _entry(self, fmt: KVFormat) -> int:
        return fmt.vector_bytes(self.dim) + self.index_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A state of fixed size a sequence, shared out by `heads`: linear attention, Mamba, or a short
    convolution. `layer_bytes` of one layer, all heads; `spelt` is their formula."""

    name: str
    layers: int
    heads: int
    layer_bytes: int
    spelt: str

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        del fmt, tp
        return 0

    early_token_bytes = token_bytes

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        del fmt
        heads = -(-self.heads // tp)
        return self.layers * -(-self.layer_bytes * heads // self.heads) if tokens else 0

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        del block_tokens
        return self.sequence_bytes(tokens, fmt, tp)

    def formula(self, fmt: KVFormat) -> str:
        del fmt
        return f"{self.layers} layers · {self.layer_bytes:,} B a sequence ({self.spelt})"


@dataclass(frozen=True, slots=True)
class Geometry:
    """All parts of a model."""

    parts: tuple[Part, ...]

    def token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes that one more token of a long sequence costs."""
        return sum(part.token_bytes(fmt, tp) for part in self.parts)

    def early_token_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes that one more token costs while no window is full."""
        return sum(part.early_token_bytes(fmt, tp) for part in self.parts)

    def fixed_bytes(self, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes of a sequence that do not depend on its length at all."""
        states = [part for part in self.parts if isinstance(part, Recurrent)]
        return sum(part.sequence_bytes(1, fmt, tp) for part in states)

    def sequence_bytes(self, tokens: int, fmt: KVFormat, tp: int = 1) -> int:
        """Bytes of one sequence of `tokens`."""
        return sum(part.sequence_bytes(tokens, fmt, tp) for part in self.parts)

    def paged_bytes(self, tokens: int, fmt: KVFormat, *, block_tokens: int, tp: int = 1) -> int:
        """Bytes of one sequence of `tokens` in whole blocks of `block_tokens`."""
        return sum(
            part.paged_bytes(tokens, fmt, block_tokens=block_tokens, tp=tp) for part in self.parts
        )

    def every_layer_full(self) -> Geometry:
        """The same without windows: what they save."""
        return Geometry(
            tuple(
                Attention(
                    kind=Full(),
                    layers=part.layers,
                    kv_heads=part.kv_heads,
                    key_dim=part.key_dim,
                    value_dim=part.value_dim,
                )
                if isinstance(part, Attention)
                else part
                for part in self.parts
            )
        )
