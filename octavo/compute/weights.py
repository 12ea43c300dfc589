"""Where weights come from: the contract of a source, its complete list of names, and the choice.

Names are the Hugging Face ones of the model's family, whatever the file calls them. Knows no
file format; a source is strict about its own file, `check_complete` about what the model needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from octavo.compute.families import family_of
from octavo.core.errors import ModelFileError, ModelNotFound
from octavo.core.model_config import ModelConfig

if TYPE_CHECKING:
    import torch

_SHOWN_NAMES = 8


class WeightSource(Protocol):
    """One model's weights on disk. Opening reads headers only."""

    def config(self) -> ModelConfig:
        """The geometry the files state."""

    def metadata(self) -> dict[str, Any] | None:
        """That of a GGUF file, tokenizer and all; None for a folder, which has files for it."""

    def names(self) -> list[str]:
        """Names of all tensors, in the order of `tensors`."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor, rows first."""

    def types(self) -> dict[str, str]:
        """Storage type of each tensor: F32, F16, BF16 or a GGUF type of blocks."""

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor once, on the CPU, contiguous, in its own memory."""

    def total_bytes(self) -> int:
        """Bytes of all tensors as `tensors` yields them."""

    def fingerprint(self) -> bytes:
        """32 bytes that name config and weights; see `octavo.compute.fingerprint`."""


def open_source(path: str | Path) -> WeightSource:
    """Open a folder with safetensors or a .gguf file, check it is complete, read no weights yet."""
    path = Path(path)
    if path.is_dir():
        from octavo.compute.safetensors_source import SafetensorsSource

        source: WeightSource = SafetensorsSource(path)
    elif path.is_file() and path.suffix == ".gguf":
        from octavo.compute.gguf_source import GGUFSource

        source = GGUFSource(path)
    elif path.exists():
        raise ModelFileError(f"{path.name}: give a folder with safetensors files or a .gguf file")
    else:
        raise ModelNotFound(f"{path}: no such folder or file")
    check_complete(source)
    return source


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a decoder of this family and geometry has, with its shape [out, in] or
    [width]."""
    family, hidden = family_of(config), config.hidden_size
    sizes = _shapes_by_field(config)
    layer: dict[str, tuple[int, ...]] = {}
    for field, stems in family.layer.items():
        parts = sizes[field]
        # A fused tensor is its parts one after the other; else there is one name for each part.
        rows = [part[0] for part in parts] if len(stems) > 1 else [sum(part[0] for part in parts)]
        for stem, n_rows in zip(stems, rows, strict=True):
            layer[f"{stem}.weight"] = (n_rows, *parts[0][1:])
            if _has_bias(config, field):
                layer[f"{stem}.bias"] = (n_rows,)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for index in range(config.n_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _shapes_by_field(config: ModelConfig) -> dict[str, list[tuple[int, ...]]]:
    """Shapes of the parts of each decoder field."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.n_heads * config.head_dim, config.kv_heads * config.head_dim
    norms = ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm")
    shapes: dict[str, list[tuple[int, ...]]] = {name: [(hidden,)] for name in norms}
    shapes |= {name: [(config.head_dim,)] for name in ("q_norm", "k_norm")}
    shapes["qkv"] = [(q_rows, hidden), (kv_rows, hidden), (kv_rows, hidden)]
    shapes["out"] = [(hidden, q_rows)]
    shapes["gate_up"] = [(inner, hidden), (inner, hidden)]
    shapes["down"] = [(hidden, inner)]
    return shapes


def _has_bias(config: ModelConfig, field: str) -> bool:
    if field in ("gate_up", "down"):
        return config.mlp_bias
    return config.attention_bias and (
        field == "qkv" or (field == "out" and family_of(config).out_bias)
    )


def check_complete(source: WeightSource) -> None:
    """Raise ModelFileError listing the names that are missing or unknown, or the wrong shapes."""
    expected, found = expected_shapes(source.config()), source.shapes()
    problems = [
        f"{title}: {_listed(names)}"
        for title, names in (
            ("missing", expected.keys() - found.keys()),
            ("unknown", found.keys() - expected.keys()),
        )
        if names
    ]
    if problems:
        raise ModelFileError(f"weights do not match the config; {'; '.join(problems)}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ModelFileError(
                f"tensor {name} has shape {list(found[name])}; the config says {list(shape)}",
                param=name,
            )


def _listed(names: set[str]) -> str:
    shown = [ascii(name[:96]) for name in sorted(names)[:_SHOWN_NAMES]]
    if len(names) > _SHOWN_NAMES:
        shown.append(f"and {len(names) - _SHOWN_NAMES} more")
    return ", ".join(shown)
