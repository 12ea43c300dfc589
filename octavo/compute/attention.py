"""What an attention backend is, and how one is chosen. Knows no particular backend's arithmetic.

A backend reads K and V only through the pool, those of the running step included, so that a prompt
computed cold and one found in the cache see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from octavo.core.errors import ConfigError
from octavo.core.spec import Full, Group, Sliding

if TYPE_CHECKING:
    import numpy as np
    import torch

    from octavo.compute.kv_pool import KVPool

Window = int | None  # a query at p reads positions (p - window, p]; None: all of [0, p]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """What a backend must serve. `groups` are the model's; each layer is in one of them.

    Scores are q · k times `scale` (None: head_dim ** -0.5), then, with a `softcap`,
    softcap · tanh(score / softcap).
    """

    n_heads: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    dtype: str
    groups: tuple[Group, ...]
    device: str = "cpu"
    scale: float | None = None
    softcap: float | None = None

    def windows(self) -> list[Window]:
        """The window of each group."""
        return [window_of(group) for group in self.groups]


def window_of(group: Group) -> Window:
    """The group's window in tokens; raises ConfigError for a kind that is neither full nor that."""
    kind = group.kind
    if isinstance(kind, Sliding):
        return kind.window
    if not isinstance(kind, Full):
        raise ConfigError(
            f"layers of kind {type(kind).__name__} are not supported; known are Full and Sliding",
            param="layer_types",
        )
    return None


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """One step's rows for one group, on the host. Valid for one step: block ids are not kept.

    row_starts    int32 [rows + 1]: row r owns the flattened tokens from row_starts[r] up to
                  row_starts[r + 1]
    kv_tokens     int32 [rows]: tokens up to and including the row's last one; the row's own are the
                  last of them
    block_tables  int32 [rows, most blocks]: ids in logical order, 0 where there is none (any more)
    slots         int64 [tokens]: block id · block_tokens + offset to store at, -1: do not store
    """

    row_starts: np.ndarray
    kv_tokens: np.ndarray
    block_tables: np.ndarray
    slots: np.ndarray


class AttentionBackend(Protocol):
    """Bound to one pool. `plan` runs once a step; its result serves every layer of that step."""

    def plan(self, groups: Sequence[AttentionRows]) -> Any:
        """Everything about a step that does not depend on the layer, given the rows per group."""

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, plan: Any) -> None:
        """Store k and v [tokens, kv_heads, head_dim] where the plan's slots say."""

    def attend(self, layer: int, q: torch.Tensor, plan: Any) -> torch.Tensor:
        """Causal attention of q [tokens, n_heads, head_dim] over the pool; same shape and dtype.

        `layer` is the model's number; its group has the window. `write` of the same layer comes
        first.
        """


class BackendKind(Protocol):
    """A backend's class: says why it cannot serve a shape, and makes one for a pool."""

    def refusals(self, shape: AttentionShape) -> list[str]: ...

    def __call__(self, pool: KVPool, shape: AttentionShape) -> AttentionBackend: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The backend taken, and for each one passed over the reasons it gave."""

    name: str
    kind: BackendKind
    refused: Mapping[str, list[str]]


def select(name: str, shape: AttentionShape) -> Selection:
    """The backend called `name`, or with `auto` the first that can serve `shape`.

    Raises ConfigError if the one asked for refuses: there is no silent fallback.
    """
    kinds = _kinds()
    if name != "auto" and name not in kinds:
        raise ConfigError(
            f"attention_backend must be auto or one of {', '.join(kinds)}; got {name[:40]!r}",
            param="attention_backend",
        )
    refused: dict[str, list[str]] = {}
    for candidate in kinds if name == "auto" else (name,):
        kind = kinds[candidate]()
        reasons = kind.refusals(shape)
        if not reasons:
            return Selection(candidate, kind, refused)
        refused[candidate] = reasons
    told = "; ".join(f"{each}: {', '.join(reasons)}" for each, reasons in refused.items())
    raise ConfigError(
        f"no attention backend can serve this model: {told}", param="attention_backend"
    )


def _kinds() -> dict[str, Callable[[], BackendKind]]:
    """Every backend, best first; the reference comes last. Imported only when tried."""
    return {"torch": _torch}


def _torch() -> BackendKind:
    from octavo.compute.torch_paged import TorchPaged

    return TorchPaged
