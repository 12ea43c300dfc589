"""Choosing tokens on the kernels (native/choose.cpp). Rows that need more room than an op has are
chosen in torch."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p

import numpy as np
import torch

from octavo.compute import torch_chooser
from octavo.compute.choice import Draw
from octavo.compute.native import structs
from octavo.compute.native.library import Program, Workers

ROWS = 256  # chosen at a time
_TOO_MANY = -3  # what the kernel answers of a row with more likely tokens than it can sort
_MASK_64 = (1 << 64) - 1
# Mirrors `Choice` in native/choose.cpp.
_CHOICE = np.dtype(
    [
        ("seed", np.uint64),
        ("position", np.uint64),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("temperature", np.float32),
        ("top_k", np.int32),
        ("choice", np.uint32),
        ("shaped", np.int32),
    ]
)


class NativeChooser:
    """`octavo.compute.choice.Chooser`. One caller at a time."""

    def __init__(self, workers: Workers, vocab: int) -> None:
        self._workers = workers
        self._vocab = vocab
        self._choices = np.zeros(ROWS, dtype=_CHOICE)
        self._tokens = np.zeros(ROWS, dtype=np.int32)
        arguments = structs.Choose(
            choices=c_void_p(self._choices.ctypes.data),
            tokens=c_void_p(self._tokens.ctypes.data),
            vocab=vocab,
        )
        self._program = Program(workers.library, [("choose", arguments)])

    def __call__(
        self, logits: torch.Tensor, draws: Sequence[Draw | None], *, shaped: bool = False
    ) -> list[int]:
        assert logits.is_contiguous()
        assert logits.shape == (len(draws), self._vocab)
        tokens: list[int] = []
        for begin in range(0, len(draws), ROWS):
            end = begin + ROWS
            tokens += self._tile(logits[begin:end], draws[begin:end], shaped=shaped)
        return tokens

    def _tile(
        self, logits: torch.Tensor, draws: Sequence[Draw | None], *, shaped: bool
    ) -> list[int]:
        n = len(draws)
        choices = self._choices[:n]
        choices["shaped"] = shaped
        choices["temperature"] = [0.0 if d is None else d.params.temperature for d in draws]
        for i, draw in enumerate(draws):
            if draw is not None and draw.params.temperature > 0:
                choices[i] = _choice(draw, shaped=shaped)
        step = structs.Step(n_wanted=n, input=logits.data_ptr())
        self._workers.run(self._program, step)
        tokens: list[int] = self._tokens[:n].tolist()
        left = [i for i, token in enumerate(tokens) if token == _TOO_MANY]
        if left:
            others = torch_chooser.choose(logits[left], [draws[i] for i in left], shaped=shaped)
            for i, token in zip(left, others, strict=True):
                tokens[i] = token
        return tokens


def _choice(draw: Draw, *, shaped: bool) -> tuple[float, ...]:
    params = draw.params
    assert params.seed is not None  # resolved when the request was made
    return (
        params.seed & _MASK_64,
        draw.position,
        params.top_p,
        params.min_p,
        params.temperature,
        params.top_k,
        draw.choice,
        shaped,
    )
