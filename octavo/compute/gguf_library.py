"""GGUF formats that are read through the `gguf` package: their code grids could only be copied.

A weight's bits choose one of hundreds of listed points. Owns which types these are and the optional
package, which is imported only when a file holds one of them. Knows no files and no block layouts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from octavo.core.errors import ModelFileError

LIBRARY_TYPES = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
EXTRA = "octavo[gguf]"


def library_decoder(type_name: str, *, name: str) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """What decodes uint8 [n, block bytes] of one of LIBRARY_TYPES into float32 [n, elements].

    `name` is the tensor's. Raises ModelFileError naming the extra where the package is missing.
    """
    package, kind = _package(type_name, name=name)

    def decode(blocks: torch.Tensor, out: torch.Tensor) -> None:
        with np.errstate(all="ignore"):  # a scale may be anything, as in every other format
            out.copy_(torch.from_numpy(package.dequantize(blocks.numpy(), kind)))

    return decode


def _package(type_name: str, *, name: str) -> tuple[Any, Any]:
    """The module that dequantises, and its own name of the type."""
    try:
        kind = importlib.import_module("gguf.constants").GGMLQuantizationType[type_name]
        return importlib.import_module("gguf.quants"), kind
    except (ImportError, AttributeError, KeyError):
        raise ModelFileError(
            f"tensor {name!a} is stored as {type_name}, which is read with the package gguf, and "
            f"that is missing or too old: install {EXTRA}, or take a file in another format",
            param=name,
        ) from None
