"""Runs a step on the kernels: a batch's arrays in, hidden states and logits out.

Owns the two recorded programs and the threads that run them. Knows no requests and no sampling.
"""

from __future__ import annotations

import ctypes

import torch

from octavo.compute.inputs import StepInputs
from octavo.compute.native import structs
from octavo.compute.native.chooser import NativeChooser
from octavo.compute.native.library import Program, Workers
from octavo.compute.native.pool import NativeKVPool
from octavo.compute.native.program import HEAD_ROWS
from octavo.core.model_config import ModelConfig


class NativeExecutor:
    """`octavo.compute.executor.Executor` on the kernels. One caller at a time."""

    def __init__(
        self,
        config: ModelConfig,
        pool: NativeKVPool,
        *,
        workers: Workers,
        body: Program,
        head: Program,
    ) -> None:
        self.pool = pool
        self._config = config
        self._workers = workers
        self._body = body
        self._head = head
        self._logits = torch.empty(0, config.vocab_size)
        self.choose = NativeChooser(workers, config.vocab_size)

    @property
    def device(self) -> torch.device:
        return self.pool.device

    @property
    def vocab_size(self) -> int:
        return self._config.vocab_size

    def hidden(self, inputs: StepInputs, wanted: torch.Tensor) -> torch.Tensor:
        """Hidden states float32 [wanted, hidden] of those flattened tokens."""
        out = torch.empty(len(wanted), self._config.hidden_size)
        groups = (structs.GroupRows * len(inputs.attention))()
        for into, rows in zip(groups, inputs.attention, strict=True):
            into.block_tables = rows.block_tables.ctypes.data
            into.slots = rows.slots.ctypes.data
            into.table_stride = rows.block_tables.shape[1]
        rows = inputs.attention[0]
        step = structs.Step(
            n_tokens=len(inputs.tokens),
            n_rows=len(rows.kv_tokens),
            n_wanted=len(wanted),
            tokens=inputs.tokens.data_ptr(),
            positions=inputs.positions.data_ptr(),
            wanted=wanted.data_ptr(),
            row_starts=rows.row_starts.ctypes.data,
            kv_tokens=rows.kv_tokens.ctypes.data,
            groups=ctypes.cast(groups, ctypes.POINTER(structs.GroupRows)),
            out=out.data_ptr(),
        )
        self._workers.run(self._body, step)
        return out

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [rows, hidden] -> float32 [rows, vocab], gone with the next call: memory
        taken anew for each step would be cleared by the system each time."""
        hidden = hidden.contiguous()
        if len(hidden) > len(self._logits):
            self._logits = torch.empty(len(hidden), self._config.vocab_size)
        out = self._logits[: len(hidden)]
        for begin in range(0, len(hidden), HEAD_ROWS):
            rows = hidden[begin : begin + HEAD_ROWS]
            step = structs.Step(
                n_wanted=len(rows), input=rows.data_ptr(), out=out[begin:].data_ptr()
            )
            self._workers.run(self._head, step)
        cap = self._config.logit_softcap
        return out if cap is None else out.div_(cap).tanh_().mul_(cap)

    def close(self) -> None:
        """End the threads."""
        self._workers.close()
