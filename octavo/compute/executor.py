"""What carries a step's tokens through a model, and the one in plain torch.

Knows no requests, no sampling and no scheduling: arrays in, hidden states and logits out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from octavo.compute import torch_chooser
from octavo.compute.attention import AttentionBackend
from octavo.compute.choice import Chooser
from octavo.compute.decoder import Decoder
from octavo.compute.inputs import StepInputs
from octavo.compute.kv_pool import KVPool
from octavo.core.batch import Move


class Pool(Protocol):
    """The K and V memory, as far as a runner deals with it."""

    block_tokens: int

    @property
    def device(self) -> torch.device: ...

    def move(self, moves: Sequence[Move]) -> None:
        """Copy the first slots of blocks, in order, and zero the rest of the targets."""

    def wipe(self, blocks: Sequence[int]) -> None:
        """Zero blocks that a step begins and does not fill."""


class Executor(Protocol):
    """One model bound to one pool."""

    @property
    def pool(self) -> Pool: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def choose(self) -> Chooser: ...

    def hidden(self, inputs: StepInputs, wanted: torch.Tensor) -> torch.Tensor:
        """Hidden states [wanted, hidden] of those flattened tokens, int64 [wanted]. K and V of
        every token are in the pool afterwards, where the step says that they are stored."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [rows, hidden] -> float32 [rows, vocab], valid until the next call."""


class TorchExecutor:
    """The decoder in plain torch, on any device."""

    def __init__(self, decoder: Decoder, pool: KVPool, *, backend: AttentionBackend) -> None:
        self.pool = pool
        self._decoder = decoder
        self._backend = backend
        self.choose: Chooser = torch_chooser.choose

    @property
    def vocab_size(self) -> int:
        return self._decoder.config.vocab_size

    def hidden(self, inputs: StepInputs, wanted: torch.Tensor) -> torch.Tensor:
        return self._decoder.hidden(
            inputs.tokens,
            inputs.positions,
            backend=self._backend,
            plan=self._backend.plan(inputs.attention),
            wanted=wanted,
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._decoder.logits(hidden)
