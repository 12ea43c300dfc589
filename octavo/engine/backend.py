"""Which way a model is computed: native kernels or plain torch. Owns the choice and its reasons.

A backend loads the weights first and, once what is left of the memory is known, makes the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from octavo.compute.attention import AttentionShape, select
from octavo.core.config import EngineConfig
from octavo.core.errors import ConfigError
from octavo.core.model_config import ModelConfig
from octavo.core.spec import SCALED_DTYPES, KVSpec

if TYPE_CHECKING:
    from octavo.compute.decoder import Decoder
    from octavo.compute.executor import Executor
    from octavo.compute.native.layers import ModelPanels
    from octavo.compute.progress import Progress
    from octavo.compute.weights import WeightSource

Refused = Mapping[str, list[str]]
LoadProgress = Callable[[int, int], None]  # tensors loaded, tensors in all


class Backend(Protocol):
    """`numerics` names what shapes the bits of K and V; `refused` the better ones not taken."""

    native: bool
    numerics: str
    refused: Refused

    def load(
        self, config: EngineConfig, source: WeightSource, *, progress: LoadProgress
    ) -> None: ...

    def executor(self, config: EngineConfig, spec: KVSpec) -> Executor:
        """Once, after `load`; takes the memory of K and V."""


def choose(config: EngineConfig, source: WeightSource) -> Backend:
    """The backend asked for, or with `auto` the first that can.

    Raises ConfigError if the one asked for refuses: there is no silent fallback.
    """
    asked = config.model.attention_backend
    if asked == "torch":
        _check_plain(config, "plain torch was asked for")
        return TorchBackend({})
    from octavo.compute.native.start import refusals

    reasons = refusals(
        source,
        dtype=config.model.dtype,
        quantization=config.model.quantization,
        kv_dtype=config.cache.kv_cache_dtype,
        block_tokens=config.cache.block_size,
        device=config.model.device,
    )
    if not reasons:
        return NativeBackend()
    if asked == "native":
        raise ConfigError(
            f"the native kernels cannot serve this: {'; '.join(reasons)}",
            param="attention_backend",
        )
    _check_plain(config, "; ".join(reasons))
    return TorchBackend({"native": reasons})


def load_weights(
    backend: Backend, config: EngineConfig, source: WeightSource, *, title: str, progress: Progress
) -> None:
    """Load all of `source` into `backend`, shown as one stage."""
    n_bytes = source.total_bytes()
    with progress.stage(title, total_bytes=n_bytes) as advance:
        backend.load(config, source, progress=lambda done, total: advance(n_bytes * done // total))


def use_threads(config: EngineConfig, backends: Sequence[Backend]) -> None:
    """Threads of torch beside the kernels, which have threads of their own: one if all that is
    left for torch is to choose tokens."""
    import torch

    native = all(backend.native for backend in backends)
    torch.set_num_threads(1 if native else config.model.threads or 1)


def _check_plain(config: EngineConfig, why_not_native: str) -> None:
    """What plain torch cannot do though the kernels can."""
    dtype = config.cache.kv_cache_dtype
    if dtype in SCALED_DTYPES:
        raise ConfigError(
            f"kv_cache_dtype {dtype} needs the native kernels, and {why_not_native}; use auto",
            param="kv_cache_dtype",
        )
    if config.model.quantization is not None:
        raise ConfigError(
            f"quantization {config.model.quantization} needs the native kernels, and "
            f"{why_not_native}; leave it out",
            param="quantization",
        )


class NativeBackend:
    """The kernels of native/: weights as stored or quantised at load, whole steps in one call."""

    native = True

    def __init__(self) -> None:
        from octavo.compute.native.library import load

        self.numerics = f"native-{load().isa}"
        self.refused: Refused = {}
        self._shape: ModelConfig | None = None
        self._panels: ModelPanels | None = None

    def load(self, config: EngineConfig, source: WeightSource, *, progress: LoadProgress) -> None:
        from octavo.compute.native.start import read_panels

        self._shape = source.config()
        self._panels = read_panels(
            source,
            dtype=config.model.dtype,
            quantization=config.model.quantization,
            keep_quantized=config.model.keep_quantized,
            progress=progress,
        )

    def executor(self, config: EngineConfig, spec: KVSpec) -> Executor:
        from octavo.compute.native.program import Limits
        from octavo.compute.native.start import make_executor

        assert self._shape is not None
        assert self._panels is not None
        return make_executor(
            self._shape,
            self._panels,
            spec=spec,
            shape=_attention_shape(config, self._shape, spec),
            num_blocks=config.cache.num_blocks or 0,
            max_model_len=config.model.max_model_len or self._shape.max_position,
            limits=Limits(
                tokens=config.scheduler.max_num_batched_tokens,
                rows=config.scheduler.max_num_seqs,
            ),
            threads=config.model.threads or 1,
        )


class TorchBackend:
    """Plain torch on any device: the specification, the fallback and the oracle of tests."""

    native = False
    numerics = "torch"

    def __init__(self, refused: Refused) -> None:
        self.refused = refused
        self._decoder: Decoder | None = None

    def load(self, config: EngineConfig, source: WeightSource, *, progress: LoadProgress) -> None:
        import torch

        from octavo.compute.dtypes import resolve_dtype
        from octavo.compute.load import load_decoder

        device = torch.device(config.model.device)
        self._decoder = load_decoder(
            source,
            dtype=resolve_dtype(config.model.dtype, device),
            device=device,
            n_positions=config.model.max_model_len or source.config().max_position,
            progress=progress,
        )

    def executor(self, config: EngineConfig, spec: KVSpec) -> Executor:
        from octavo.compute.executor import TorchExecutor
        from octavo.compute.kv_pool import KVPool

        assert self._decoder is not None
        attention = _attention_shape(config, self._decoder.config, spec)
        pool = KVPool(
            spec.widest,
            config.cache.num_blocks or 0,
            block_tokens=spec.block_tokens,
            device=self._decoder.device,
        )
        backend = select("torch", attention).kind(pool, attention)
        if not config.ablations.tiled_scores:
            from octavo.compute.torch_materialised import TorchMaterialised

            backend = TorchMaterialised(pool, attention)
        return TorchExecutor(self._decoder, pool, backend=backend)


def _attention_shape(config: EngineConfig, shape: ModelConfig, spec: KVSpec) -> AttentionShape:
    return AttentionShape(
        n_heads=shape.n_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_tokens=spec.block_tokens,
        dtype=config.cache.kv_cache_dtype,
        groups=spec.groups,
        device=config.model.device,
        scale=shape.attention_scale,
        softcap=shape.attention_softcap,
    )
